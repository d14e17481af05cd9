//! The tiers in comparison, and C.

use std::time::Duration;

use comfy_table::Table;
use orin_sim::sm::{SmOptions, Sms, Tier};
use rustix::time::{ClockId, clock_gettime};

use crate::{corpus, rival};

/// Rounds, in each of which every tier executes a kernel for a while.
const ROUNDS: usize = 7;

/// Returns the processor time of this thread, in which other programs do not count.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // CAST: neither is negative, and nanoseconds are below a second.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Prints the table of the kernels whose name contains `word`.
pub(crate) fn print(word: &str) {
    let mut table = Table::new();
    table.set_header([
        "kernel",
        "interpreter, M lane-instructions/s",
        "compiled",
        "ratio",
        "ns per warp instruction",
        "C / compiled",
    ]);
    let rivals = rival::times();
    let (mut logarithms, mut count) = (0.0, 0.0);
    for (name, bench) in corpus::all().into_iter().filter(|(name, _)| name.contains(word)) {
        let tiers = [Tier::Interpreter, Tier::Compiled].map(|tier| {
            let options = SmOptions { threads: Some(1), tier, ..SmOptions::default() };
            Sms::new(16, options)
        });
        let stats = bench.run(&tiers[0]);
        bench.run(&tiers[1]);
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for (sms, best) in tiers.iter().zip(&mut best) {
                let (start, mut launches) = (now(), 0);
                while launches == 0 || now() - start < Duration::from_millis(30) {
                    bench.run(sms);
                    launches += 1;
                }
                *best = (*best).min((now() - start) / launches);
            }
        }
        let [interpreter, compiled] = best.map(|best| best.as_secs_f64());
        let (lanes, warps) = (stats.lane_instructions as f64, stats.warp_instructions as f64);
        let c = rivals.iter().find(|(rival, _)| *rival == name);
        table.add_row([
            name.to_owned(),
            format!("{:.0}", lanes / interpreter / 1e6),
            format!("{:.0}", lanes / compiled / 1e6),
            format!("{:.2}", interpreter / compiled),
            format!("{:.1}", compiled / warps * 1e9),
            c.map_or(String::new(), |(_, c)| format!("1 / {:.1}", compiled / c)),
        ]);
        logarithms += (interpreter / compiled).ln();
        count += 1.0;
    }
    println!("{table}");
    println!("generated code: {} KiB", Sms::generated_bytes() >> 10);
    println!("geometric mean of the ratios: {:.2}", f64::exp(logarithms / count));
}
