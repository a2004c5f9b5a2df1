// First start: buttons that copy a snippet. Without a script the text can be selected, and the page does not change by itself.
for (const remark of document.querySelectorAll("[data-without-script]")) remark.hidden = true;
for (const button of document.querySelectorAll("[data-copy]")) {
  // Clipboards are for trustworthy connections only.
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    const [words] = button.childNodes;
    try {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      words.data = "Copied";
    } catch {
      words.data = "Select and copy it";
    }
    setTimeout(() => { words.data = "Copy"; }, 3000);
  });
}
