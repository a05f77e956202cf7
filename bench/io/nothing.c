int nothing(int x) { return x; }
