//! Live grading: traces are assembled when they are complete, judged by the rule of their project, and watched by alerts.

mod again;
mod assemble;
mod grade;
#[cfg(test)]
mod lab;
mod ledger;
mod measure;
mod readings;
mod record;
mod reroute;
mod rule;
mod setback;
mod standstill;
mod watch;

pub(super) use assemble::{stored_link, story_trajectories};
pub(super) use measure::RECENT_NS;
pub(super) use readings::{Reading, Readings};
pub(crate) use record::words_of;
pub(crate) use rule::RuleSection;
pub(super) use rule::{GradingRule, rules};
pub(super) use standstill::{Standstill, Standstills, Why};

use std::sync::Arc;

use tokio::sync::oneshot;

use super::state::Server;

/// The threads that work beside the receivers.
pub(super) struct Live {
    assembler: std::thread::JoinHandle<()>,
    graders: grade::Graders,
    watch: tokio::task::JoinHandle<()>,
    stop_watch: oneshot::Sender<()>,
}

impl Live {
    pub(super) fn start(server: &Arc<Server>) -> std::io::Result<Live> {
        let assembling = Arc::clone(server);
        let assembler = std::thread::Builder::new()
            .name("assembler".to_owned())
            .spawn(move || assemble::run(&assembling))?;
        let (stop_watch, stopped) = oneshot::channel();
        Ok(Live {
            assembler,
            graders: grade::Graders::start(server),
            watch: tokio::spawn(watch::run(Arc::clone(server), stopped)),
            stop_watch,
        })
    }

    /// Rules may have changed.
    pub(super) fn reload(&mut self, server: &Arc<Server>) {
        self.graders.restart(server);
    }

    /// Waits for what is under way. The server must have been told to stop.
    pub(super) async fn stop(self) {
        self.graders.stop().await;
        let _ = self.stop_watch.send(());
        let _ = self.watch.await;
        let _ = tokio::task::spawn_blocking(move || self.assembler.join()).await;
    }
}
