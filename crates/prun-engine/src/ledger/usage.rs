//! What the attempts of a run used, as views of its ledger: also for whoever opens it with `sqlite3`.

use prun_core::outcome::Usage;
use prun_core::time::Timestamp;

use super::{LedgerError, Reader};

/// The attempts that have ended, one a row.
const ATTEMPTS: &str = "
    SELECT ended.unit, ended.attempt,
           json_extract(began.data, '$.executor') AS executor,
           json_extract(ended.data, '$.facts.model') AS model,
           date(ended.at / 1000, 'unixepoch') AS day, -- UTC
           began.at AS began_at, ended.at AS ended_at, -- milliseconds since the Unix epoch
           json_extract(ended.data, '$.outcome.kind') AS outcome,
           json_extract(ended.data, '$.outcome.why') AS why,
           coalesce(json_extract(ended.data, '$.facts.usage.input_tokens'), 0) AS input_tokens,
           coalesce(json_extract(ended.data, '$.facts.usage.cached_input_tokens'), 0) AS cached_input_tokens,
           coalesce(json_extract(ended.data, '$.facts.usage.output_tokens'), 0) AS output_tokens,
           json_extract(ended.data, '$.facts.usage.cost_micro_usd') AS cost_micro_usd,
           json_extract(ended.data, '$.facts.usage.turns') AS turns,
           json_extract(ended.data, '$.facts.worker_millis') AS worker_millis
      FROM events AS ended
      JOIN events AS began ON began.unit = ended.unit AND began.attempt = ended.attempt AND began.kind = 'attempt-began'
     WHERE ended.kind IN ('unit-settled', 'retry-scheduled') AND json_extract(ended.data, '$.facts') IS NOT NULL
     ORDER BY ended.seq";

/// The views that a ledger has: `usage`, and its sums by executor, model and day.
pub(super) fn views() -> String {
    let mut text = format!("CREATE VIEW IF NOT EXISTS usage AS {ATTEMPTS};");
    for by in ["executor", "model", "day"] {
        text.push_str(&format!(
            "CREATE VIEW IF NOT EXISTS usage_by_{by} AS
             SELECT {by}, count(*) AS attempts, sum(input_tokens) AS input_tokens,
                    sum(cached_input_tokens) AS cached_input_tokens, sum(output_tokens) AS output_tokens,
                    sum(cost_micro_usd) AS cost_micro_usd, sum(turns) AS turns, sum(worker_millis) AS worker_millis
               FROM usage GROUP BY {by} ORDER BY {by};"
        ));
    }
    text
}

/// What one attempt used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptUsage {
    /// The unit.
    pub unit: String,
    /// Who did it.
    pub executor: String,
    /// With which model, where that is known.
    pub model: Option<String>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Tokens, money and turns.
    pub usage: Usage,
    /// Milliseconds that its worker lived.
    pub worker_millis: u64,
}

impl Reader {
    /// What the attempts that have ended used, in the order of their ends.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn usage(&self) -> Result<Vec<AttemptUsage>, LedgerError> {
        self.read_usage().map_err(LedgerError::at("read", &self.path))
    }

    fn read_usage(&self) -> rusqlite::Result<Vec<AttemptUsage>> {
        // Not by the view: a ledger of an older version has none.
        let mut select = self.connection.prepare(ATTEMPTS)?;
        let rows = select.query_map([], |row| {
            Ok(AttemptUsage {
                unit: row.get("unit")?,
                executor: row.get("executor")?,
                model: row.get("model")?,
                ended_at: Timestamp(row.get("ended_at")?),
                usage: Usage {
                    input_tokens: row.get("input_tokens")?,
                    cached_input_tokens: row.get("cached_input_tokens")?,
                    output_tokens: row.get("output_tokens")?,
                    cost_micro_usd: row.get("cost_micro_usd")?,
                    turns: row.get("turns")?,
                },
                worker_millis: row.get::<_, Option<u64>>("worker_millis")?.unwrap_or(0),
            })
        })?;
        rows.collect()
    }
}
