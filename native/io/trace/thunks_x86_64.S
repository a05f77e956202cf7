// Entry and exit of traced functions: one thunk for each function, all with the same body.
//
// A thunk replaces a function in a slot (of a PLT, or in data). The body fills a frame and calls the function from here, so that the
// processor predicts every return and shadow stacks stay valid. Meanwhile the caller's return address is in the frame, and ours is in
// its place, so that arguments on the stack stay where the function expects them. rbx, which every function preserves, points to the
// frame, which contains the former value of rbx.
//
// Calls with all values in registers, on a thread that has its files, are recorded here: a C function would have to save and restore
// the caller's arguments, which costs as much as everything else. All other calls go to sonde_io_enter and sonde_io_exit. Both ways do
// the same, and a signal handler may find the same states: see drop_left() in engine.cpp.
//
// An unwinder finds the frame through rbx: a frame's address is its CFA, because a CFA equal to the callee's would end libgcc's second
// phase at the wrong place.
//
// The loader's functions use their return address to choose the libraries to search. For them it is the address of a return instruction
// in the caller's object, which then returns to us.

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

        // The caller's arguments, below the end of the stack, where no signal handler writes: struct Arguments, at -64(%rsp) r10 r9 r8
        // rcx rdx rsi rdi rax, then the return address and the stack.
        .set    arguments, -64

        // Reads a value as struct Reading describes, through rax.
        .macro  read at, reading, to
        movzwl  \at(%r11), %eax
        movq    arguments(%rsp, %rax), %rax
        andq    \reading + READING_KEEP(%r11), %rax
        xorq    \reading + READING_SIGN(%r11), %rax
        subq    \reading + READING_LESS(%r11), %rax
        movq    %rax, \to(%rbx)
        .endm

        // Applies from where rbx is the frame's address to where the frame is complete: the caller's rbx is in the frame.
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
        movq    %rax, -8(%rsp)          // the number of vector registers of a variadic call
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
        leaq    8(%rsp), %rdx           // the stack pointer after the return
        cmpq    %rdx, FILE_STACK_LOW(%rax)
        jae     .Lenter_slowly
        cmpq    %rdx, FILE_STACK_HIGH(%rax)
        jb      .Lenter_slowly
        movl    FILE_DEPTH(%rax), %ecx
        testl   %ecx, %ecx
        jz      .Ltake
        cmpl    $MOST_FRAMES - 2, %ecx
        ja      .Lenter_slowly
        // The enclosing call is surely in progress if it returns to us and further up; left() handles all other cases.
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
        xaddl   %ecx, FILE_DEPTH(%rax)  // one instruction: a handler runs before or after it
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
        rdtsc                           // the next instructions wait for it, so as much as possible is done before
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
        xorl    %edx, %edx              // a failed call has no size
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
        movq    $-1, FRAME_SP(%rbx)     // gives the frame back: it is not read any more
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
        .cfi_def_cfa rsp, 16            // from here on the frame is not read: sonde_io_exit gives it back
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

// vfork returns twice to one frame, and its child shares the parent's memory until it is another program. The child's calls until then
// would be recorded as the parent's, so they are left out. The return address is stored where the child does not write.
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
        rdsspq  %rax                    // a shadow stack would not contain our return
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

// void sonde_io_with_vectors(void (*call)(void*), void* what): calls `call` and preserves all vector registers. Needed at the entry of
// a call if the application's libraries must be asked: the registers may hold arguments of the traced call.
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
        // The header of the area must be zero, otherwise the processor refuses to restore from it.
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
