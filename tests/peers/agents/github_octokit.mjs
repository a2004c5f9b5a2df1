// A day with octokit against any base URL: node github_octokit.mjs BASE_URL TOKEN. Prints what is not as it should be.
import { Octokit } from "@octokit/rest";

const [base, token] = process.argv.slice(2);
const github = new Octokit({ baseUrl: base, auth: token });
const wrong = [];
const same = (what, got, wanted) => {
  if (JSON.stringify(got) !== JSON.stringify(wanted)) wrong.push(`${what}: ${JSON.stringify(got)} instead of ${JSON.stringify(wanted)}`);
};
const refused = async (what, call, status, message) => {
  try {
    await call();
    wrong.push(`${what}: was not refused`);
  } catch (error) {
    same(what, [error.status, error.response?.data?.message?.includes(message)], [status, true]);
  }
};

const { data: me } = await github.rest.users.getAuthenticated();
const repo = `octokit-${process.pid}`;
const at = { owner: me.login, repo };
const { data: made } = await github.rest.repos.createForAuthenticatedUser({ name: repo, auto_init: true });
same("a new repository", [made.full_name, made.default_branch, made.private], [`${me.login}/${repo}`, "main", false]);
await refused("the same name again", () => github.rest.repos.createForAuthenticatedUser({ name: repo }), 422, "creation failed");
await refused("a repository that is not there", () => github.rest.repos.get({ owner: me.login, repo: `${repo}-x` }), 404, "Not Found");

const { data: readme } = await github.rest.repos.getContent({ ...at, path: "README.md" });
same("its README", Buffer.from(readme.content, "base64").toString(), `# ${repo}\n`);
const raw = await github.rest.repos.getContent({ ...at, path: "README.md", mediaType: { format: "raw" } });
same("the README as it is", raw.data, `# ${repo}\n`);
const content = Buffer.from("# New\n").toString("base64");
const written = await github.rest.repos.createOrUpdateFileContents({ ...at, path: "README.md", message: "docs: new", content, sha: readme.sha });
same("writing it", written.status, 200);
await refused("writing with the old sha", () => github.rest.repos.createOrUpdateFileContents({ ...at, path: "README.md", message: "m", content, sha: readme.sha }), 409, "does not match");

const { data: main } = await github.rest.git.getRef({ ...at, ref: "heads/main" });
await github.rest.git.createRef({ ...at, ref: "refs/heads/feature/x", sha: main.object.sha });
const { data: blob } = await github.rest.git.createBlob({ ...at, content: "one\n" });
const { data: tree } = await github.rest.git.createTree({ ...at, base_tree: written.data.commit.tree.sha, tree: [
  { path: "a/one.txt", mode: "100644", type: "blob", sha: blob.sha }, { path: "two.txt", mode: "100644", type: "blob", content: "two\n" }] });
const { data: commit } = await github.rest.git.createCommit({ ...at, message: "feat: two files\n\nFixes #1", tree: tree.sha, parents: [main.object.sha] });
await github.rest.git.updateRef({ ...at, ref: "heads/feature/x", sha: commit.sha });
const { data: branch } = await github.rest.repos.getBranch({ ...at, branch: "feature/x" });
same("the branch", branch.commit.sha, commit.sha);

const { data: issue } = await github.rest.issues.create({ ...at, title: "An issue", labels: ["bug"], assignees: [me.login] });
same("the issue", [issue.number, issue.labels.map((one) => one.name), issue.assignees.length], [1, ["bug"], 1]);
await refused("an issue without a title", () => github.request("POST /repos/{owner}/{repo}/issues", { ...at, body: "x" }), 422, "\"title\" wasn't supplied");
const { data: pull } = await github.rest.pulls.create({ ...at, title: "Two files", head: "feature/x", base: "main" });
const { data: diff } = await github.rest.pulls.get({ ...at, pull_number: pull.number, mediaType: { format: "diff" } });
same("its diff", [diff.includes("+++ b/two.txt"), diff.includes("+one")], [true, true]);
const { data: files } = await github.rest.pulls.listFiles({ ...at, pull_number: pull.number });
same("its files", files.map((one) => one.filename), ["a/one.txt", "two.txt"]);
const { data: merged } = await github.rest.pulls.merge({ ...at, pull_number: pull.number, merge_method: "squash", sha: commit.sha });
same("merging it", merged.merged, true);
same("the issue it fixes", (await github.rest.issues.get({ ...at, issue_number: 1 })).data.state_reason, "completed");
await refused("merging it again", () => github.rest.pulls.merge({ ...at, pull_number: pull.number }), 405, "not mergeable");

for (let number = 0; number < 45; number += 1) await github.rest.issues.create({ ...at, title: `page ${number}` });
const all = await github.paginate(github.rest.issues.listForRepo, { ...at, state: "all", per_page: 20 });
same("all pages", all.length, 47);
const found = await github.rest.search.issuesAndPullRequests({ q: `repo:${me.login}/${repo} is:open page`, advanced_search: "true" });
same("a search", found.data.total_count, 45);
const first = await github.rest.repos.get(at);
const again = await github.rest.repos.get({ ...at, headers: { "if-none-match": first.headers.etag } }).catch((error) => error);
same("what has not changed", again.status, 304);
same("limits", Number(first.headers["x-ratelimit-limit"]), 5000);
const { data: release } = await github.rest.repos.createRelease({ ...at, tag_name: "v1", generate_release_notes: false });
same("the latest release", (await github.rest.repos.getLatestRelease(at)).data.id, release.id);
const { data: gist } = await github.rest.gists.create({ files: { "a.txt": { content: "hi" } } });
same("a gist", (await github.rest.gists.get({ gist_id: gist.id })).data.files["a.txt"].content, "hi");
await github.rest.activity.starRepoForAuthenticatedUser(at);
same("stars", (await github.rest.repos.get(at)).data.stargazers_count, 1);
await github.rest.repos.update({ ...at, name: `${repo}-2` });
same("the old name", (await github.rest.repos.get(at)).data.name, `${repo}-2`);
same("deleting it", (await github.rest.repos.delete({ owner: me.login, repo: `${repo}-2` })).status, 204);

wrong.forEach((line) => console.log(line));
process.exitCode = wrong.length ? 1 : 0;
