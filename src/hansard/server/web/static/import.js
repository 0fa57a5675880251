// Imports files that are dropped on the page, one after the other, with progress and a report of each.
"use strict";
(() => {
  const form = document.querySelector("form[data-import]"), list = document.querySelector("#uploads");
  if (!form) return;
  const words = JSON.parse(document.documentElement.dataset.words ?? "{}");
  const say = (text, values = {}) => (words[text] ?? text).replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
  const zone = form.querySelector(".drop-zone"), chosen = form.querySelector("input[type=file]");
  let queue = Promise.resolve();

  const make = (tag, text = "", name = "") => Object.assign(document.createElement(tag), { textContent: text, className: name });

  function add(file) {
    const item = make("li", "", "card"), head = make("h2", file.name), bar = make("progress"), state = make("p", say("Waiting"), "dim");
    head.dir = "auto";
    bar.max = 1;
    bar.setAttribute("aria-label", file.name);
    item.append(head, bar, state);
    list.append(item);
    queue = queue.then(() => send(file, item, bar, state));
  }

  function send(file, item, bar, state) {
    const given = new URLSearchParams([...new FormData(form)].filter(([, value]) => typeof value === "string" && value));
    const url = new URL(form.dataset.import + encodeURIComponent(file.name), location.href);
    url.search = given;
    return new Promise((done) => {
      const request = new XMLHttpRequest();
      const failed = (text) => {
        state.textContent = text;
        state.className = "problem";
        state.role = "alert";
      };
      request.upload.addEventListener("progress", (event) => {
        if (!event.lengthComputable) return;
        bar.value = event.loaded / event.total;
        state.textContent = say("Sending: {percent} %", { percent: Math.floor(100 * event.loaded / event.total) });
      });
      request.upload.addEventListener("load", () => { bar.removeAttribute("value"); state.textContent = say("Storing"); });
      request.addEventListener("load", () => {
        const answer = new DOMParser().parseFromString(request.responseText, "text/html");
        if (request.status === 200) {
          // The report is relative to the address that it was sent to.
          for (const link of answer.querySelectorAll("a[href]")) link.href = new URL(link.getAttribute("href"), url);
          state.remove();
          item.append(...answer.body.children);
        } else failed(answer.querySelector(".problem")?.textContent ?? say("The file was not imported ({status}).", { status: request.status }));
      });
      request.addEventListener("error", () => failed(say("The server does not answer. Import the file again later: what was stored already is not stored twice.")));
      request.addEventListener("loadend", () => { bar.remove(); done(); });
      request.open("POST", url);
      request.setRequestHeader("Content-Type", "application/octet-stream");
      request.setRequestHeader("Hansard-Piece", "1");
      request.setRequestHeader("Hansard-Proof", form.dataset.proof);
      request.send(file);
    });
  }

  chosen.addEventListener("change", () => { [...chosen.files].forEach(add); chosen.value = ""; });
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const kind of ["dragover", "dragleave", "drop"]) addEventListener(kind, (event) => {
    if (![...event.dataTransfer?.types ?? []].includes("Files")) return;
    event.preventDefault();
    zone.classList.toggle("over", kind === "dragover");
    if (kind === "drop") [...event.dataTransfer.files].forEach(add);
  });
})();
