"use strict";
// Before the first paint, or a dark reader is flashed with white. Storage may be forbidden on file://.
(function () {
  let kept = null;
  try { kept = window.localStorage.getItem("sonde-theme"); } catch (refused) { kept = null; }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  document.documentElement.classList.add("scripted");
})();
