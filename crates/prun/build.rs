//! Links the program at a fixed address.
//!
//! A dispatcher lives beside every worker. At an address of the kernel's choice each of them would write over
//! some 26,000 pointers when it starts, and with that hold half a MiB of its own that could be shared; see the rows
//! `dispatch-task` and `memory` of `benches/run`. What that gives up is the random place of the program's own
//! code; libraries, stack and heap keep theirs, and a worker has the rights of its user in any case.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    // Elsewhere the linker has another word for it, or none.
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bin=prun=-no-pie");
    }
}
