//! What the server says of itself, and how a call gets to its tool.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, GetPromptRequestParams, GetPromptResponse, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::answer::Answer;
use super::call::{Call, Progress};
use super::shared::Shared;
use super::tools::{self, ToolSpec};
use super::{prompt, resources};

/// How long a call may still take once the client has left: enough for one that only looks.
const GRACE: Duration = Duration::from_millis(400);

/// What a client puts before its model in every session.
const INSTRUCTIONS: &str = "prun gives independent units of work on one git repository to many coding agents at once, \
checks each, and lands all of them together, uncommitted. Flow: check, start, wait (again with since = next, until \
woke is ended), result, diff, reconcile, integrate without tree, then with the tree once the user agrees. Workers \
never commit; the commit is the user's. Prompt fan-out and the skill prun tell more.";

/// The server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    tools: Arc<Vec<ToolSpec>>,
    closing: watch::Receiver<bool>,
}

impl Server {
    /// `closing` tells when the client has left.
    pub(super) fn new(shared: Arc<Shared>, closing: watch::Receiver<bool>) -> Self {
        Self { shared, tools: Arc::new(tools::all()), closing }
    }

    /// Runs something that blocks on a thread of its own.
    async fn aside<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Shared) -> Result<T, ErrorData> + Send + 'static,
    ) -> Result<T, ErrorData> {
        let shared = Arc::clone(&self.shared);
        spawn_blocking(move || act(&shared))
            .await
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build();
        let own = Implementation::new("prun", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(own).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.iter().map(|tool| tool.listed.clone()).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.listed.name == name).map(|tool| tool.listed.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let known = self.tools.iter().find(|tool| tool.listed.name == request.name).cloned();
        let Some(tool) = known else {
            return Err(ErrorData::invalid_params(format!("there is no tool {}", request.name), None));
        };
        let token = context.meta.get_progress_token();
        let (call, mut progress) = Call::new(token.is_some());
        let (shared, inside) = (Arc::clone(&self.shared), call.clone());
        let arguments = request.arguments.unwrap_or_default();
        let mut job = spawn_blocking(move || tool.run(&shared, arguments, &inside));
        let mut closing = self.closing.clone();
        let left = async move {
            // The channel may be gone as well; the client is, in either case.
            let _ = closing.wait_for(|closed| *closed).await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::pin!(left);
        loop {
            tokio::select! {
                done = &mut job => {
                    let answer: Result<Answer, String> = done.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                    let answer = answer.map_err(|error| ErrorData::invalid_params(error, None))?;
                    return Ok(answer.into_result().into());
                }
                Some(step) = progress.recv() => {
                    if let Some(token) = &token {
                        tell(&context.peer, token, step).await;
                    }
                }
                () = context.ct.cancelled() => break,
                () = &mut left => break,
            }
        }
        call.leave();
        // Nobody reads it: an answer to a call that was cancelled is not sent.
        Err(ErrorData::internal_error("the call was cancelled", None))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.aside(|shared| Ok(ListResourcesResult::with_all_items(resources::list(shared)))).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.aside(move |shared| resources::read(shared, &request.uri)).await.map(Into::into)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompt::list()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let task = request.arguments.as_ref().and_then(|arguments| arguments.get("task"));
        let task = task.and_then(serde_json::Value::as_str);
        prompt::get(&request.name, task).map(Into::into)
    }
}

async fn tell(peer: &Peer<RoleServer>, token: &ProgressToken, step: Progress) {
    let (done, total) = (u32::try_from(step.done).unwrap_or(u32::MAX), u32::try_from(step.total).unwrap_or(u32::MAX));
    let told = ProgressNotificationParam::new(token.clone(), f64::from(done))
        .with_total(f64::from(total))
        .with_message(step.message);
    // A client that has left is noticed elsewhere.
    let _ = peer.notify_progress(told).await;
}
