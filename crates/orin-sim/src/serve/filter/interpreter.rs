//! An interpreter of classic BPF, for the tests of the filter.

use libc::{seccomp_data, sock_filter};

/// Runs a program on the data of a call. Returns its result; `None` if the kernel would refuse the program.
pub(super) fn run(program: &[sock_filter], data: &seccomp_data) -> Option<u32> {
    let mut words = Vec::new();
    for half in [data.nr.cast_unsigned(), data.arch] {
        words.push(half);
    }
    for whole in [&data.instruction_pointer].into_iter().chain(&data.args) {
        // CAST: the halves of the word.
        words.extend([*whole as u32, (*whole >> 32) as u32]);
    }
    let (mut accumulator, mut at) = (0_u32, 0);
    loop {
        let sock_filter { code, jt, jf, k } = *program.get(at)?;
        let (class, operation, from_x) =
            (u32::from(code) & 7, u32::from(code) & 0xf0, u32::from(code) & libc::BPF_X != 0);
        at += 1;
        if from_x {
            return None;
        }
        match class {
            libc::BPF_LD if u32::from(code) == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                let index = usize::try_from(k).ok()?;
                accumulator = *words.get(index / 4).filter(|_| index.is_multiple_of(4))?;
            }
            libc::BPF_ALU if operation == libc::BPF_AND => accumulator &= k,
            libc::BPF_JMP => {
                let met = match operation {
                    libc::BPF_JEQ => accumulator == k,
                    libc::BPF_JSET => accumulator & k != 0,
                    _ => return None,
                };
                at += usize::from(if met { jt } else { jf });
            }
            libc::BPF_RET => return Some(k),
            _ => return None,
        }
    }
}
