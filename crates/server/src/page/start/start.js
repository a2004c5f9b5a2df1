// First start: buttons that copy a snippet. Without a script the text can be selected, and the page does not change by itself.
for (const remark of document.querySelectorAll("[data-without-script]")) remark.hidden = true;
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const [words] = button.childNodes;
    const snippet = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(snippet.textContent);
      words.data = "Copied";
    } catch {
      // Clipboards are for trustworthy connections only; the older command works on others, too.
      getSelection().selectAllChildren(snippet);
      words.data = document.execCommand("copy") ? "Copied" : "Selected: copy it";
    }
    setTimeout(() => { words.data = "Copy"; }, 3000);
  });
}
