//! The plan of `prun run -p PROMPT -p PROMPT`, without a file.

use crate::budget::Budget;
use crate::event::Mode;
use crate::ids::ExecutorName;
use crate::plan::model::{
    COMMAND_EXECUTOR, CommandLine, DEFAULT_EXECUTOR, DEFAULT_FIRST_OUTPUT_MILLIS, DEFAULT_IDLE_MILLIS, DEFAULT_RETRIES,
    Dirty, Env, PLAN_VERSION, PlanFile, PlanPlaces, Prompt, ResultFrom, UnitPlaces, UnitPlan,
};
use crate::plan::problem::Problem;
use crate::plan::read::MAX_UNITS;

/// What the command line says about every ad-hoc unit.
#[derive(Clone, Debug)]
pub struct AdHoc {
    /// Read or write.
    pub mode: Mode,
    /// Executors in order; empty: the default one.
    pub executors: Vec<ExecutorName>,
    /// The command line, for the executor `command`.
    pub command: Option<CommandLine>,
    /// What happens to uncommitted work.
    pub dirty: Option<Dirty>,
    /// How many may run at once.
    pub jobs: Option<u32>,
}

/// A plan with the units `p1`, `p2` and so on; its title is the first line of the first prompt.
///
/// # Errors
/// No prompt, an empty one, too many, or the executor `command` without a command line.
pub fn ad_hoc(prompts: &[String], options: &AdHoc) -> Result<PlanFile, Vec<Problem>> {
    let mut problems = Vec::new();
    if prompts.is_empty() || prompts.len() > MAX_UNITS {
        problems.push(Problem::new(None, format!("{} prompts; 1 to {MAX_UNITS} are allowed", prompts.len())));
    }
    let empty = prompts.iter().enumerate().filter(|(_, prompt)| prompt.trim().is_empty());
    let problem = |at: usize| Problem::new(None, format!("prompt {} is empty", at + 1));
    problems.extend(empty.map(|(at, _)| problem(at).hint("say in it what the unit is to do")));
    if options.command.is_none() && options.executors.iter().any(|name| name.as_str() == COMMAND_EXECUTOR) {
        problems.push(Problem::new(None, "the executor `command` needs a command line").hint("give it with --command"));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(PlanFile {
        version: PLAN_VERSION,
        title: title(&prompts[0]),
        repo: None,
        base: "HEAD".to_owned(),
        guard: None,
        dirty: options.dirty,
        setup: None,
        setup_limit_millis: None,
        verify: None,
        check_limit_millis: None,
        jobs: options.jobs,
        depth: 0,
        context: None,
        budget: Budget::default(),
        maps: Vec::new(),
        units: prompts.iter().enumerate().map(|(at, prompt)| unit(at + 1, prompt, options)).collect(),
        places: PlanPlaces::default(),
    })
}

fn unit(number: usize, prompt: &str, options: &AdHoc) -> UnitPlan {
    UnitPlan {
        id: format!("p{number}").parse().expect("p and a number is a valid id"),
        mode: options.mode,
        executors: executors(options),
        command: options.command.clone(),
        result: ResultFrom::File,
        prompt: Prompt::Inline(prompt.to_owned()),
        owns: Vec::new(),
        verify: None,
        deliverables: Vec::new(),
        effort: None,
        model: None,
        env: Env::default(),
        retries: DEFAULT_RETRIES,
        timeout_millis: None,
        idle_millis: Some(DEFAULT_IDLE_MILLIS),
        first_output_millis: Some(DEFAULT_FIRST_OUTPUT_MILLIS),
        budget: Budget::default(),
        panel: None,
        row: None,
        priority: 0,
        checkout: true,
        places: UnitPlaces::default(),
    }
}

fn executors(options: &AdHoc) -> Vec<ExecutorName> {
    let default = if options.command.is_some() { COMMAND_EXECUTOR } else { DEFAULT_EXECUTOR };
    match options.executors.as_slice() {
        [] => vec![default.parse().expect("a built-in executor's name is valid")],
        named => named.to_vec(),
    }
}

/// The first line with a word in it, at most 60 characters.
fn title(prompt: &str) -> String {
    const LONGEST: usize = 60;
    let line = prompt.trim().lines().next().unwrap_or_default().trim_end();
    match line.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", line[..cut].trim_end()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> AdHoc {
        AdHoc { mode: Mode::Write, executors: Vec::new(), command: None, dirty: None, jobs: Some(2) }
    }

    #[test]
    fn prompts_become_numbered_units() {
        let prompts = ["\n  Fix the parser\nof csv".to_owned(), "x".repeat(99)];
        let plan = ad_hoc(&prompts, &options()).unwrap();
        assert_eq!(plan.title, "Fix the parser");
        assert_eq!(plan.units.iter().map(|unit| unit.id.as_str()).collect::<Vec<_>>(), ["p1", "p2"]);
        assert_eq!(plan.units[1].prompt.text(), Some(prompts[1].as_str()));
        assert_eq!(plan.units[0].executors[0].as_str(), "codex");
        assert_eq!(title(&prompts[1]).chars().count(), 61);
    }

    /// C26.
    #[test]
    fn empty_prompts_are_refused_by_number() {
        let problems = ad_hoc(&["a".to_owned(), " \n".to_owned()], &options()).unwrap_err();
        assert_eq!(problems[0].message, "prompt 2 is empty");
        assert_eq!(ad_hoc(&[], &options()).unwrap_err().len(), 1);
    }
}
