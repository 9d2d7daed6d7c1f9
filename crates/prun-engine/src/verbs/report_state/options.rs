//! The command line of `report-state`.

use std::ffi::OsString;
use std::path::PathBuf;

use super::super::arguments::{Argument, Arguments, UsageError, unknown};
use super::super::of_runs::OfRuns;

/// How it is used.
pub const USAGE: &str = "usage: prun report-state [--root DIR]... [--json] [--summary] [--sort path|tail-bytes-desc] \
                         [--min-tail-bytes N] [--include-legacy-pid] [--run ID]... [--all-runs]";

/// What the command line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportArgs {
    /// Directories to look over; the temporary directory where there are none.
    pub roots: Vec<PathBuf>,
    /// For programs.
    pub json: bool,
    /// With counters.
    pub summary: bool,
    /// In this order.
    pub sort: Sort,
    /// Units with a smaller tail are not shown. One of unknown size is.
    pub min_tail_bytes: u64,
    /// With the text of `dispatch-pid`.
    pub include_legacy_pid: bool,
    /// Runs whose attempts are reported as well.
    pub runs: OfRuns,
}

/// The order of units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By their paths.
    #[default]
    Path,
    /// The largest tail first, one of unknown size last.
    TailBytesDesc,
}

impl ReportArgs {
    /// Reads the arguments after the verb.
    ///
    /// # Errors
    /// An unknown argument, an option without its value, a value that the option does not take.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, UsageError> {
        let mut args = Self::default();
        let mut line = Arguments::new(arguments.into_iter());
        while let Some(argument) = line.next()? {
            let name = match argument {
                Argument::Option(name) => name,
                Argument::Value(value) => return Err(unknown(&value)),
            };
            match name.as_str() {
                "--root" => args.roots.push(line.value("--root")?.into()),
                "--json" => args.json = true,
                "--summary" => args.summary = true,
                "--sort" => args.sort = sort(line.text("--sort")?)?,
                "--min-tail-bytes" => args.min_tail_bytes = bytes(line.text("--min-tail-bytes")?)?,
                "--include-legacy-pid" => args.include_legacy_pid = true,
                name if args.runs.take(name, &mut line)? => {}
                name => return Err(unknown(name.as_ref())),
            }
        }
        Ok(args)
    }
}

fn sort(value: String) -> Result<Sort, UsageError> {
    match value.as_str() {
        "path" => Ok(Sort::Path),
        "tail-bytes-desc" => Ok(Sort::TailBytesDesc),
        _ => Err(UsageError::BadValue { option: "--sort", value, expected: "path or tail-bytes-desc" }),
    }
}

fn bytes(value: String) -> Result<u64, UsageError> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok()).flatten();
    digits.ok_or(UsageError::BadValue { option: "--min-tail-bytes", value, expected: "a whole number" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<ReportArgs, UsageError> {
        ReportArgs::parse(line.iter().map(OsString::from))
    }

    #[test]
    fn every_option_is_known() {
        let line = ["--root", "a", "--root=b", "--json", "--summary", "--sort", "tail-bytes-desc"];
        let more = ["--min-tail-bytes", "7", "--include-legacy-pid", "--run", "k3f9", "--all-runs"];
        let args = parse(&[&line[..], &more].concat()).unwrap();
        assert_eq!((args.roots, args.sort), (vec!["a".into(), "b".into()], Sort::TailBytesDesc));
        assert!(args.json && args.summary && args.include_legacy_pid && args.runs.all);
        assert_eq!(args.min_tail_bytes, 7);
    }

    #[test]
    fn a_bad_line_is_refused() {
        let lines: [&[&str]; 8] = [
            &["x"],
            &["--what"],
            &["--root"],
            &["--sort", "size"],
            &["--min-tail-bytes", "-1"],
            &["--min-tail-bytes", "1k"],
            &["--min-tail-bytes", "99999999999999999999"],
            &["--json=1"],
        ];
        for line in lines {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
