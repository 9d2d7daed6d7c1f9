//! The agent clients that prun can be made known to, and for whom.

use std::path::PathBuf;

use crate::context::Context;
use crate::error::{CliError, CliResult};

/// An agent client that can coordinate runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
}

impl Client {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Claude, Self::Codex];

    /// The name of its program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }

    /// Whether it can know an MCP server for one repository alone.
    pub(crate) fn has_projects(self) -> bool {
        self == Self::Claude
    }

    /// Whether its program is in PATH.
    pub(crate) fn is_installed(self) -> bool {
        in_path(self.name()).is_some()
    }
}

/// The first file of that name in PATH.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// For whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The user, in every project: the home directory.
    User(PathBuf),
    /// Everybody who works in this repository.
    Project(PathBuf),
}

/// What `prun mcp` and `prun skill` are told about where to install.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// For Claude Code; without --claude and --codex, for both
    #[arg(long)]
    claude: bool,
    /// For Codex
    #[arg(long)]
    codex: bool,
    /// For the repository of the current directory, in files of its own
    #[arg(long, conflicts_with = "user")]
    pub(crate) project: bool,
    /// For all of your projects, the default
    #[arg(long)]
    user: bool,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl Place {
    /// Whether clients are named.
    pub(crate) fn names_clients(&self) -> bool {
        self.claude || self.codex
    }

    /// The clients that are meant; without a name, both.
    pub(crate) fn clients(&self) -> impl Iterator<Item = Client> {
        let is_meant = |client: &Client| match client {
            Client::Claude => self.claude || !self.names_clients(),
            Client::Codex => self.codex || !self.names_clients(),
        };
        Client::ALL.into_iter().filter(is_meant)
    }

    /// For whom.
    ///
    /// # Errors
    /// There is no repository, or no home.
    pub(crate) fn scope(&self, context: &Context) -> CliResult<Scope> {
        if self.project {
            let root = context.repository();
            return root
                .map(Scope::Project)
                .ok_or_else(|| CliError::usage("there is no repository here").hint("use --user"));
        }
        std::env::home_dir().map(Scope::User).ok_or_else(|| CliError::usage("HOME is not set"))
    }
}

/// Where Claude Code has its own files, if not in the home directory.
pub(crate) fn claude_config_dir() -> Option<PathBuf> {
    std::env::var_os("CLAUDE_CONFIG_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}
