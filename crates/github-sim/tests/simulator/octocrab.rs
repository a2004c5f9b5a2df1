//! A real client with strict types: what octocrab cannot read, it refuses.

use crate::lab;
use gradus_github_sim::SimulatorServer;
use octocrab::models::IssueState;
use octocrab::params;
use octocrab::{GitHubError, Octocrab};

fn client(server: &SimulatorServer, token: &str) -> Octocrab {
    Octocrab::builder().base_uri(server.url()).unwrap().personal_token(token.to_owned()).build().unwrap()
}

fn refused(error: octocrab::Error) -> Box<GitHubError> {
    match error {
        octocrab::Error::GitHub { source, .. } => source,
        other => panic!("not an answer of GitHub's: {other:?}"),
    }
}

#[tokio::test]
async fn a_day_with_octocrab() {
    let server = SimulatorServer::start(lab::world("w3"), 0).unwrap();
    let github = client(&server, lab::OCTO);
    assert_eq!(github.current().user().await.unwrap().login, "octo");
    let own = github.current().list_repos_for_authenticated_user().send().await.unwrap();
    let names: Vec<_> = own.items.iter().map(|one| one.full_name.clone().unwrap_or_default()).collect();
    assert!(names.contains(&"octo/secrets".to_owned()), "{names:?}");

    let repository = github.repos("octo", "demo");
    assert_eq!(repository.get().await.unwrap().default_branch.as_deref(), Some("main"));
    let file = repository.get_content().path("src/app.py").r#ref("main").send().await.unwrap().take_items().remove(0);
    assert!(file.decoded_content().unwrap().contains("wonderful"));
    let made = repository.create_file("docs/a.md", "docs: a", "# A\n").branch("main").send().await.unwrap();
    let updated = repository
        .update_file("docs/a.md", "docs: more", "# B\n", &made.content.sha)
        .branch("main")
        .send()
        .await
        .unwrap();
    assert_ne!(made.commit.sha, updated.commit.sha);
    let branches = repository.list_branches().send().await.unwrap();
    assert!(branches.items.iter().any(|branch| branch.name == "shout"));
    let releases = repository.releases().list().send().await.unwrap();
    assert_eq!(releases.items[0].tag_name, "v0.9.0");

    let issues = github.issues("octo", "demo");
    let issue = issues.create("From octocrab").body("text").labels(vec!["bug".to_owned()]).send().await.unwrap();
    assert_eq!(issue.state, IssueState::Open);
    let comment = issues.create_comment(issue.number, "hello").await.unwrap();
    assert_eq!(comment.user.login, "octo");
    let closed = issues.update(issue.number).state(IssueState::Closed).send().await.unwrap();
    assert_eq!(closed.state, IssueState::Closed);
    let mut pages = issues.list().state(params::State::All).per_page(10).send().await.unwrap();
    let mut count = pages.items.len();
    while let Some(next) = github.get_page::<octocrab::models::issues::Issue>(&pages.next).await.unwrap() {
        count += next.items.len();
        pages = next;
    }
    assert_eq!(count, 29);

    let pulls = github.pulls("octo", "demo");
    let pull = pulls.get(23).await.unwrap();
    assert_eq!(pull.mergeable, Some(true));
    assert_eq!(pulls.list_files(23).await.unwrap().items.len(), 1);
    assert_eq!(pulls.list_reviews(23).send().await.unwrap().items.len(), 1);
    let merged = pulls.merge(23).method(params::pulls::MergeMethod::Squash).send().await.unwrap();
    assert!(merged.merged);
    let found = github.search().issues_and_pull_requests("crash repo:octo/demo is:open").send().await.unwrap();
    assert_eq!(found.total_count, Some(3));
    assert_eq!(github.search().code("legacy_auth org:acme").send().await.unwrap().items.len(), 1);

    let missing = refused(github.repos("octo", "nothing").get().await.unwrap_err());
    assert_eq!((missing.status_code.as_u16(), missing.message.as_str()), (404, "Not Found"));
    let again = refused(pulls.merge(23).send().await.unwrap_err());
    assert_eq!(again.status_code.as_u16(), 405);
    let stranger = client(&server, "nobody");
    assert_eq!(refused(stranger.current().user().await.unwrap_err()).status_code.as_u16(), 401);
    let unrouted = &server.world().lock().unwrap().counters().unrouted.clone();
    assert!(unrouted.is_empty(), "{unrouted:?}");
}
