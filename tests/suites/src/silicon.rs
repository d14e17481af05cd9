//! The corpus on any device: one test per source file.

use tegra_hcq::Program;

use super::fixtures::patience;
use test_corpus::compare::Difference;
use test_corpus::cubins::built_in;
use test_corpus::silicon::{Opinion, folder};
use test_corpus::{cases, run};
use test_harness::{Check, Context, Skip, Suite, Test};

/// A test that runs the cases of one source file.
macro_rules! file {
    ($file:literal, $about:literal) => {
        Test::new($file, $about, |context| file(context, $file).into()).sharing_device()
    };
}

/// The suite.
pub static SUITE: Suite = Suite {
    name: "silicon",
    about: "the kernel corpus, compared with the CPU and with stored results of a GPU",
    orin_only: false,
    tests: &[
        file!("algorithms", "hashes, sorting, transforms, products, graphs"),
        file!("async", "copies to shared memory that bypass registers"),
        file!("atomics", "every operation and type, in global and shared memory"),
        file!("bfloat", "bfloat16, alone and in pairs"),
        file!("bits", "logic, fields, bytes and packed operations"),
        file!("convert", "conversions between all types with every rounding"),
        file!("double", "double precision to the last bit"),
        file!("float", "single precision to the last bit"),
        file!("flow", "divergence, loops, switches, calls, recursion"),
        file!("grid", "special registers"),
        file!("half", "half precision, alone and in pairs"),
        file!("integer", "integers of 8 to 32 bits"),
        file!("memory", "sizes, caches, constants, local memory, stacks"),
        file!("shared", "shared memory and the barriers of a block"),
        file!("special", "special functions within their tolerances"),
        file!("tensor", "products of small matrices"),
        file!("uniform", "values that are the same for all threads"),
        file!("warp", "shuffles, votes, matches, reductions"),
        file!("wide", "integers of 64 and 128 bits"),
    ],
};

fn file(context: &Context, file: &str) -> Check {
    let device = context.device()?;
    let (major, minor) = device.info().sm_version;
    let Some(cubin) = built_in(file, 10 * major + minor) else {
        return Err(Skip(format!("no cubins for SM {major}.{minor}: only 8.7 and 9.0 are built in")).into());
    };
    // A binary copied to a board has no source tree next to it; then only the CPU's results are compared.
    let opinion = if folder().is_dir() { Some(Opinion::load(&folder())?) } else { None };
    let program = Program::load(device, cubin)?;
    let mut queue = device.queue()?;
    let (mut total, mut compared) = (Difference::default(), 0);
    for case in cases().iter().filter(|case| case.file == file) {
        let outputs = run::run(device, &program, &mut queue, case, patience(context))?;
        total = total.and(run::judge(case, &outputs, case.expected(), "the CPU")?);
        let difference =
            opinion.as_ref().map(|opinion| opinion.compare(case, &outputs)).transpose()?.flatten();
        if let Some(difference) = difference {
            compared += 1;
            if let Some(at) = difference.first_wrong {
                return Err(format!(
                    "{}: element {at} differs from the stored result of silicon",
                    case.kernel
                )
                .into());
            }
        }
    }
    context.note(format!(
        "{} of {} elements have the CPU's bits; {compared} kernels compared with stored results",
        total.equal, total.elements
    ));
    Ok(())
}
