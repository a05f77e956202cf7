// Entry and exit of traced functions, one thunk a function, all with one body.
//
// A thunk stands in a slot (of a PLT, or of data) in a function's place. The body fills a frame and calls the function from here, so
// that the processor foresees every return and shadow stacks stay valid. The caller's return address moves into the frame meanwhile
// and ours takes its place: arguments on the stack stay where the function expects them. rbx, which every function gives back, points
// to the frame, where its own value lies.
//
// Calls whose values lie in registers, on a thread that has its files, are recorded here, for a call of C would have to keep and
// restore what the caller passed, which costs as much as all the rest; all others go to sonde_io_enter and sonde_io_exit. Both ways do
// the same, and what a signal's handler may find is the same: see drop_left() in engine.cpp.
//
// Whoever unwinds finds the frame through rbx: a frame's address is its CFA, for a CFA equal to the callee's ends libgcc's second
// phase at the wrong place.
//
// The loader's functions look at their return address to know whose libraries they search. For them it is that of a return
// instruction in the caller's object, from which we are returned to.

#if defined(__x86_64__)
#include "io/trace/offsets.h"

        .text
        .balign 16
        .globl  sonde_io_thunks
        .hidden sonde_io_thunks
        .hidden sonde_io_functions
        .hidden sonde_io_file
        .type   sonde_io_thunks, @function
sonde_io_thunks:
        .cfi_startproc
        .set    n, 0
        .rept   SONDE_IO_THUNKS
        .balign 16
        endbr64
        leaq    sonde_io_functions + FUNCTION_BYTES * n(%rip), %r11
        jmp     sonde_io_body
        .set    n, n + 1
        .endr
        .cfi_endproc
        .size   sonde_io_thunks, . - sonde_io_thunks

        // What the caller passed, below the stack's end, where no handler of a signal writes: struct Arguments, at -64(%rsp) r10 r9 r8
        // rcx rdx rsi rdi rax, then the return address and the stack.
        .set    arguments, -64

        // A value as struct Reading tells, through rax.
        .macro  read at, reading, to
        movzwl  \at(%r11), %eax
        movq    arguments(%rsp, %rax), %rax
        andq    \reading + READING_KEEP(%r11), %rax
        xorq    \reading + READING_SIGN(%r11), %rax
        subq    \reading + READING_LESS(%r11), %rax
        movq    %rax, \to(%rbx)
        .endm

        // From where rbx is the frame's address to where the frame is filled in: the caller's rbx is in the frame.
        .macro  cfi_rbx_in_frame
        .cfi_escape 0x10, 3, 2, 0x73, FRAME_RBX         // DW_CFA_expression rbx: at rbx + FRAME_RBX
        .endm

        // While the function runs.
        .macro  cfi_frame
        .cfi_def_cfa rbx, 0
        .cfi_offset rbx, FRAME_RBX
        .cfi_offset rip, FRAME_BACK
        .cfi_escape 0x16, 7, 3, 0x73, FRAME_SP, 0x06    // DW_CFA_val_expression rsp: *(rbx + FRAME_SP)
        .endm

        .macro  restore_arguments
        movq    8(%rsp), %r10
        movq    16(%rsp), %r9
        movq    24(%rsp), %r8
        movq    32(%rsp), %rcx
        movq    40(%rsp), %rdx
        movq    48(%rsp), %rsi
        movq    56(%rsp), %rdi
        movq    64(%rsp), %rax
        .endm

        .balign 64
        .type   sonde_io_body, @function
sonde_io_body:
        .cfi_startproc
        .cfi_personality 0x9b, DW.ref.sonde_io_personality
        .cfi_lsda 0x1b, .Lno_table
        movq    %rax, -8(%rsp)          // how many vector registers a variadic function was given
        movq    %rdi, -16(%rsp)
        movq    %rsi, -24(%rsp)
        movq    %rdx, -32(%rsp)
        movq    %rcx, -40(%rsp)
        movq    %r8, -48(%rsp)
        movq    %r9, -56(%rsp)
        movq    sonde_io_file@gottpoff(%rip), %rax
        movq    %fs:(%rax), %rax
        testq   %rax, %rax
        jz      .Lenter_slowly
        cmpb    $0, FUNCTION_QUICK(%r11)
        je      .Lenter_slowly
        leaq    8(%rsp), %rdx           // where the stack is after the return
        cmpq    %rdx, FILE_STACK_LOW(%rax)
        jae     .Lenter_slowly
        cmpq    %rdx, FILE_STACK_HIGH(%rax)
        jb      .Lenter_slowly
        movl    FILE_DEPTH(%rax), %ecx
        testl   %ecx, %ecx
        jz      .Ltake
        cmpl    $MOST_FRAMES - 2, %ecx
        ja      .Lenter_slowly
        // The call around this one is surely under way if it returns to us and further up; what else there is left() knows.
        leaq    (%rcx, %rcx, 2), %rcx
        shlq    $5, %rcx
        movq    FILE_FRAMES - FRAME_BYTES + FRAME_SP(%rax, %rcx), %rcx
        cmpq    %rdx, %rcx
        jb      .Lenter_slowly
        cmpq    $-1, %rcx
        je      .Lenter_slowly
        leaq    sonde_io_returned(%rip), %rdx
        cmpq    %rdx, -8(%rcx)
        jne     .Lenter_slowly
.Ltake:
        movl    $1, %ecx
        xaddl   %ecx, FILE_DEPTH(%rax)  // one instruction: a handler comes before or after it
        leaq    (%rcx, %rcx, 2), %rdx
        shlq    $5, %rdx
        leaq    FILE_FRAMES(%rax, %rdx), %rax
        movq    %rbx, FRAME_RBX(%rax)
        .cfi_remember_state
        movq    %rax, %rbx
        cfi_rbx_in_frame
        shlq    $16, %rcx
        orq     FUNCTION_NUMBER(%r11), %rcx
        movq    %rcx, FRAME_FUNCTION(%rbx)      // and depth, and no flags
        movq    (%rsp), %rax
        movq    %rax, FRAME_BACK(%rbx)
        read    FUNCTION_SIZE_AT, FUNCTION_SIZE, FRAME_SIZE
        read    FUNCTION_OFFSET_AT, FUNCTION_OFFSET, FRAME_OFFSET
        read    FUNCTION_FILE_AT, FUNCTION_FILE, FRAME_HANDLE
        movq    %r11, FRAME_CALLED(%rbx)
        movq    FUNCTION_TARGET(%r11), %r11
        leaq    8(%rsp), %rcx
        rdtsc                           // what comes next waits for it: what can, comes before
        shlq    $32, %rdx
        orq     %rdx, %rax
        movq    %rax, FRAME_BEGIN(%rbx)
        movq    %rcx, FRAME_SP(%rbx)    // filled in
        movq    -8(%rsp), %rax
        movq    -32(%rsp), %rdx
        movq    -40(%rsp), %rcx
        addq    $8, %rsp                // the return address is in the frame
        cfi_frame
.Lcall:
        call    *%r11
        .globl  sonde_io_returned
        .hidden sonde_io_returned
sonde_io_returned:
        movq    %rax, %rsi
        movq    %rdx, %r8
        rdtsc
        shlq    $32, %rdx
        orq     %rax, %rdx
        movl    FRAME_FUNCTION(%rbx), %r9d      // and depth, and flags
        movq    FRAME_CALLED(%rbx), %r11
        cmpb    $0, FUNCTION_QUICK(%r11)
        je      .Lexit_slowly
        movq    FRAME_FILE(%rbx), %rdi
        movl    FILE_CURRENT(%rdi), %eax
        leaq    FILE_USED(%rdi, %rax, 4), %r10
        movl    $1, %ecx
        xaddl   %ecx, (%r10)
        cmpl    $BLOCK_RECORDS - 1, %ecx
        ja      .Lblock_is_full
        leaq    (%rcx, %rcx, 4), %rcx
        shlq    $14, %rax
        addq    %rdi, %rax
        leaq    FILE_BLOCKS + BLOCK_HEADER(%rax, %rcx, 8), %rax         // the record
        movq    FRAME_BEGIN(%rbx), %rcx
        movq    %rcx, RECORD_BEGIN(%rax)
        movq    %rdx, RECORD_END(%rax)
        movq    %rsi, %rdx
        cmpb    $0, FUNCTION_NARROW(%r11)
        je      1f
        movslq  %esi, %rdx
1:      movzbl  FUNCTION_FAILURES(%r11), %ecx
        testq   %rdx, %rdx
        js      3f
        jz      2f
        shrl    $1, %ecx
        jmp     3f
2:      shrl    $2, %ecx
3:      andl    $1, %ecx
        jz      4f
        xorl    %edx, %edx              // of a call that failed nothing is told
        orl     $FLAG_FAILED << 24, %r9d
4:      movq    FRAME_SIZE(%rbx), %rcx
        cmpb    $0, FUNCTION_SIZE_IS_RESULT(%r11)
        cmovne  %rdx, %rcx
        movq    %rcx, RECORD_SIZE(%rax)
        movq    FRAME_OFFSET(%rbx), %rcx
        movq    %rcx, RECORD_OFFSET(%rax)
        movq    FRAME_HANDLE(%rbx), %rcx
        cmpb    $0, FUNCTION_FILE_IS_RESULT(%r11)
        cmovne  %rdx, %rcx
        movq    %rcx, %rdx              // folded()
        shrq    $32, %rdx
        imull   $0x9e3779b1, %edx, %edx
        xorl    %edx, %ecx
        movl    %ecx, RECORD_FILE(%rax)
        movl    %r9d, RECORD_FUNCTION(%rax)     // and depth, and flags
        pushq   FRAME_BACK(%rbx)
        .cfi_def_cfa rsp, 8
        .cfi_offset rip, -8
        .cfi_restore rsp
        cfi_rbx_in_frame
        movzbl  FRAME_DEPTH(%rbx), %ecx
        movq    FRAME_RBX(%rbx), %r11
        .cfi_register rbx, r11
        movq    $-1, FRAME_SP(%rbx)     // gives the frame back: nothing is read from it any more
        movl    %ecx, FILE_DEPTH(%rdi)
        movq    %rsi, %rax
        movq    %r8, %rdx
        movq    %r11, %rbx
        .cfi_restore rbx
        ret

.Lblock_is_full:
        cfi_frame
        decl    (%r10)
.Lexit_slowly:
        pushq   FRAME_BACK(%rbx)
        pushq   FRAME_RBX(%rbx)
        .cfi_def_cfa rsp, 16            // from here on nothing is read from the frame: sonde_io_exit gives it back
        .cfi_offset rip, -8
        .cfi_offset rbx, -16
        .cfi_restore rsp
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %r8
        .cfi_adjust_cfa_offset 8
        movq    %rbx, %rdi
        call    sonde_io_exit           // rax: what to return
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbx
        ret

.Lenter_slowly:
        .cfi_restore_state
        movq    %r10, arguments(%rsp)   // the static chain
        subq    $72, %rsp
        .cfi_adjust_cfa_offset 72
        movq    %r11, %rdi
        leaq    8(%rsp), %rsi
        call    sonde_io_enter          // rax: the frame, or 0; rdx: the function
        movq    %rdx, %r11
        testq   %rax, %rax
        jz      .Lplain
        .cfi_remember_state
        movq    %rbx, FRAME_RBX(%rax)
        movq    %rax, %rbx
        cfi_rbx_in_frame
        restore_arguments
        addq    $80, %rsp               // the return address is in the frame
        cfi_frame
        cmpq    $0, FRAME_VIA(%rbx)
        je      .Lcall
        pushq   %rax                    // keeps the stack aligned as a call would
        leaq    .Lvia_returned(%rip), %r10
        pushq   %r10
        pushq   FRAME_VIA(%rbx)
        jmp     *%r11
.Lvia_returned:
        addq    $8, %rsp
        jmp     sonde_io_returned
.Lplain:
        .cfi_restore_state
        restore_arguments
        addq    $72, %rsp
        .cfi_adjust_cfa_offset -72
        jmp     *%r11
        .cfi_endproc
        .size   sonde_io_body, . - sonde_io_body

// vfork, which returns twice to one frame, and whose child has the memory of its parent until it is another program: what it calls
// meanwhile would stand among its parent's calls, and is left out. The way back is kept where the child does not write.
        .hidden sonde_io_beginning
        .hidden sonde_io_vfork_back
        .hidden sonde_io_vfork_target
        .globl  sonde_io_vfork
        .hidden sonde_io_vfork
        .type   sonde_io_vfork, @function
sonde_io_vfork:
        .cfi_startproc
        endbr64
        xorl    %eax, %eax
        rdsspq  %rax                    // a shadow stack would miss our return
        testq   %rax, %rax
        jnz     .Lvfork_plain
        movq    sonde_io_beginning@gottpoff(%rip), %rax
        cmpb    $0, %fs:(%rax)
        jne     .Lvfork_plain           // a child's own
        movq    sonde_io_vfork_back@gottpoff(%rip), %rcx
        .cfi_remember_state
        popq    %fs:(%rcx)
        .cfi_adjust_cfa_offset -8
        .cfi_undefined rip
        call    *sonde_io_vfork_target(%rip)
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        movl    %eax, %edi
        call    sonde_io_vforked
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rax
        .cfi_adjust_cfa_offset -8
        movq    sonde_io_vfork_back@gottpoff(%rip), %rcx
        jmp     *%fs:(%rcx)
.Lvfork_plain:
        .cfi_restore_state
        jmp     *sonde_io_vfork_target(%rip)
        .cfi_endproc
        .size   sonde_io_vfork, . - sonde_io_vfork

// void sonde_io_with_vectors(void (*call)(void*), void* what): calls it with all vector registers kept, for an entry that has to ask
// the application's own libraries: the registers may hold arguments of the traced call.
        .globl  sonde_io_with_vectors
        .hidden sonde_io_with_vectors
        .type   sonde_io_with_vectors, @function
sonde_io_with_vectors:
        .cfi_startproc
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_offset rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register rbp
        pushq   %rbx
        .cfi_offset rbx, -24
        movq    %rdi, %r8
        movq    %rsi, %r9
        movl    sonde_io_vector_bytes(%rip), %eax
        subq    %rax, %rsp
        andq    $-64, %rsp
        movq    %rsp, %rbx
        // The header of the area must be zero, or what is restored from it is refused.
        xorl    %eax, %eax
        movl    $8, %ecx
        leaq    512(%rbx), %rdi
        cld
        rep stosq
        movl    $0xe6, %eax             // SSE, AVX, AVX-512; the x87 stack carries no arguments of a C function
        xorl    %edx, %edx
        xsave   (%rbx)
        movq    %r9, %rdi
        call    *%r8
        movl    $0xe6, %eax
        xorl    %edx, %edx
        xrstor  (%rbx)
        leaq    -8(%rbp), %rsp
        popq    %rbx
        popq    %rbp
        .cfi_def_cfa rsp, 8
        ret
        .cfi_endproc
        .size   sonde_io_with_vectors, . - sonde_io_with_vectors

        .section .gcc_except_table, "a"
.Lno_table:
        .byte   0xff, 0xff, 0x01, 0x00
        .hidden DW.ref.sonde_io_personality
        .weak   DW.ref.sonde_io_personality
        .section .data.rel.local.DW.ref.sonde_io_personality, "awG", @progbits, DW.ref.sonde_io_personality, comdat
        .balign 8
        .type   DW.ref.sonde_io_personality, @object
        .size   DW.ref.sonde_io_personality, 8
DW.ref.sonde_io_personality:
        .quad   sonde_io_personality
#endif
        .section .note.GNU-stack, "", @progbits
