// Entry and exit of traced functions, one thunk a function, all with one body.
//
// A thunk stands in a slot (of a PLT, or of data) in a function's place. The body keeps what the caller passed, asks sonde_io_enter for
// a frame, and calls the function from here, so that the processor foresees every return and shadow stacks stay valid. The caller's
// return address moves into the frame meanwhile and ours takes its place: arguments on the stack stay where the function expects
// them. rbx, which every function gives back, points to the frame, where its own value lies.
//
// Whoever unwinds finds the frame through rbx: a frame's address is its CFA, for a CFA equal to the callee's ends libgcc's second
// phase at the wrong place. Offsets are those of struct Frame (io/record.hpp).
//
// The loader's functions look at their return address to know whose libraries they search. For them it is that of a return
// instruction in the caller's object, from which we are returned to.

#if defined(__x86_64__)

        .set    frame_rbx, 0
        .set    frame_back, 8
        .set    frame_sp, 16
        .set    frame_via, 56

        .text
        .balign 16
        .globl  sonde_io_thunks
        .hidden sonde_io_thunks
        .type   sonde_io_thunks, @function
sonde_io_thunks:
        .cfi_startproc
        .set    n, 0
        .rept   SONDE_IO_THUNKS
        .balign 16
        endbr64
        movl    $n, %r11d
        jmp     sonde_io_body
        .set    n, n + 1
        .endr
        .cfi_endproc
        .size   sonde_io_thunks, . - sonde_io_thunks

        .macro  keep register
        pushq   %\register
        .cfi_adjust_cfa_offset 8
        .endm
        .macro  restore register
        popq    %\register
        .cfi_adjust_cfa_offset -8
        .endm
        .macro  restore_arguments
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        restore r10
        restore r9
        restore r8
        restore rcx
        restore rdx
        restore rsi
        restore rdi
        restore rax
        .endm

        .balign 16
        .type   sonde_io_body, @function
sonde_io_body:
        .cfi_startproc
        .cfi_personality 0x9b, DW.ref.sonde_io_personality
        .cfi_lsda 0x1b, .Lno_table
        keep    rax                     // how many vector registers a variadic function was given
        keep    rdi
        keep    rsi
        keep    rdx
        keep    rcx
        keep    r8
        keep    r9
        keep    r10                     // the static chain
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        movl    %r11d, %edi
        leaq    8(%rsp), %rsi           // struct Arguments: r10 r9 r8 rcx rdx rsi rdi rax, the return address, the stack
        call    sonde_io_enter          // rax: the frame, or 0; rdx: the function
        movq    %rdx, %r11
        testq   %rax, %rax
        jz      .Lplain
        .cfi_remember_state
        movq    %rbx, frame_rbx(%rax)
        movq    %rax, %rbx
        restore_arguments
        addq    $8, %rsp                // the return address is in the frame
        .cfi_def_cfa rbx, 0
        .cfi_offset rbx, frame_rbx
        .cfi_offset rip, frame_back
        .cfi_escape 0x16, 7, 3, 0x73, frame_sp, 0x06    // DW_CFA_val_expression rsp: *(rbx + frame_sp)
        cmpq    $0, frame_via(%rbx)
        jne     .Lvia
        call    *%r11
        .globl  sonde_io_returned
        .hidden sonde_io_returned
sonde_io_returned:
        pushq   frame_back(%rbx)
        pushq   frame_rbx(%rbx)
        .cfi_def_cfa rsp, 16            // from here on nothing is read from the frame: sonde_io_exit gives it back
        .cfi_offset rip, -8
        .cfi_offset rbx, -16
        .cfi_restore rsp
        keep    rax
        keep    rdx
        movq    %rbx, %rdi
        movq    %rax, %rsi
        call    sonde_io_exit           // rax: what to return
        restore rdx
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        restore rbx
        .cfi_restore rbx
        ret
.Lvia:
        .cfi_def_cfa rbx, 0
        .cfi_offset rbx, frame_rbx
        .cfi_offset rip, frame_back
        .cfi_escape 0x16, 7, 3, 0x73, frame_sp, 0x06
        pushq   %rax                    // keeps the stack aligned as a call would
        leaq    .Lvia_returned(%rip), %r10
        pushq   %r10
        pushq   frame_via(%rbx)
        jmp     *%r11
.Lvia_returned:
        addq    $8, %rsp
        jmp     sonde_io_returned
.Lplain:
        .cfi_restore_state
        restore_arguments
        jmp     *%r11
        .cfi_endproc
        .size   sonde_io_body, . - sonde_io_body

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
