// The page works without this script, which adds times in the reader's zone, lists that update while typing and when
// messages arrive, endless scrolling, copy buttons, and keyboard shortcuts.
"use strict";
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  document.documentElement.classList.add("scripted");

  // Texts in the reader's language: the server sends the translations of those that this file has

  const words = JSON.parse(document.documentElement.dataset.words ?? "{}");
  const say = (text, values = {}) => (words[text] ?? text).replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

  // Times, in the language of the page and, if the reader's browser has it too, in the form of their country

  const lang = document.documentElement.lang;
  const locale = navigator.languages.find((each) => each.split("-")[0] === lang) ?? lang;
  const clock = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit" });
  const full = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "medium" });
  const date = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", year: "numeric" });
  const long = new Intl.DateTimeFormat(locale, { dateStyle: "long" });
  const relative = new Intl.RelativeTimeFormat(locale, { numeric: "auto", style: "short" });
  const steps = [["minute", 60], ["hour", 3600], ["day", 86400]];

  function ago(moment) {
    const seconds = (moment - Date.now()) / 1000, away = Math.abs(seconds);
    if (away < 60) return relative.format(0, "second");
    if (away > 7 * 86400) return date.format(moment);
    const [unit, size] = steps.findLast(([, each]) => away >= each);
    return relative.format(Math.round(seconds / size), unit);
  }

  function localise(from = document) {
    for (const each of all("time[datetime]", from)) {
      const moment = new Date(each.dateTime);
      if (isNaN(moment)) continue;
      const style = each.dataset.style;
      each.textContent = style === "clock" ? clock.format(moment) : style === "full" ? full.format(moment) : ago(moment);
      each.title = full.format(moment);
    }
  }

  // Day headings follow the reader's time zone, not the server's.
  function days(log) {
    if (!log) return;
    all(".day", log).forEach((each) => each.remove());
    let last = "";
    for (const message of all(".message", log)) {
      const time = $(".when time", message);
      const day = time ? long.format(new Date(time.dateTime)) : last;
      if (day !== last) {
        const line = document.createElement("p"), words = document.createElement("span");
        line.className = "day";
        words.textContent = day;
        line.append(words);
        message.before(line);
      }
      last = day;
    }
  }

  // Buttons that copy a message as it was written, or a block of code

  function copyButton(name, read) {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "quiet copy";
    made.textContent = say("Copy");
    made.setAttribute("aria-label", name);
    made.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(await read());
        made.textContent = say("Copied");
      } catch (error) {
        quietly(error);
        made.textContent = say("Not copied");
      }
      made.setAttribute("aria-label", made.textContent);
      setTimeout(() => { made.textContent = say("Copy"); made.setAttribute("aria-label", name); }, 5000);
    });
    return made;
  }

  async function written(message) {
    const answer = await fetch(`${$(".open", message).href}/raw`, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(`${answer.status}`);
    const { content } = await answer.json();
    return typeof content === "string" ? content : all(".said, pre.code", message).map((each) => each.innerText).join("\n\n");
  }

  function addCopyButtons(from) {
    if (!navigator.clipboard) return;  // only with TLS, or on this machine
    for (const message of all(".message", from)) $(".open", message)?.before(copyButton(say("Copy this message"), () => written(message)));
    for (const code of all("pre.code", from)) {
      const around = document.createElement("div");
      around.className = "copied-from";
      code.replaceWith(around);
      around.append(code, copyButton(say("Copy this code"), () => code.textContent));
    }
  }

  function prepare(from) {
    localise(from);
    addCopyButtons(from);
    for (const code of all("pre.code", from)) code.tabIndex = 0;  // so that the keyboard can scroll it in every browser
  }

  // Fragments of pages, rendered by the server

  async function piece(url, signal) {
    const answer = await fetch(url, { headers: { "Hansard-Piece": "1" }, signal, credentials: "same-origin" });
    if (!answer.ok) throw new Error(`${answer.status}`);
    const made = document.createElement("template");
    made.innerHTML = await answer.text();
    prepare(made.content);
    return made.content;
  }

  const quietly = (error) => { if (error.name !== "AbortError") console.warn("hansard:", error.message); };

  // A click needs press and release on the same element, so nothing is replaced in between.
  const released = async (target) => {
    while (target.matches(":active")) await new Promise((done) => setTimeout(done, 50));
  };

  // Forms that update their results while the user types

  for (const form of all("form[data-type-ahead]")) {
    const target = $(form.dataset.typeAhead);
    let timer = 0, going = null, asked = location.href;
    const ask = async () => {
      const given = [...new FormData(form)].filter(([, value]) => value !== "");
      const url = `${form.action}?${new URLSearchParams(given)}`;
      // Leaving a field fires "change" again, and must not replace elements under a click or the focus.
      if (url === asked) return;
      asked = url;
      going?.abort();
      going = new AbortController();
      target.setAttribute("aria-busy", "true");
      try {
        const found = await piece(url, going.signal);
        await released(target);
        if (asked !== url) return;
        const focused = target.contains(document.activeElement) ? document.activeElement.href : null;
        target.replaceChildren(found);
        if (focused) all("a", target).find((each) => each.href === focused)?.focus();
        history.replaceState(null, "", url);
        facets?.dispatchEvent(new Event("toggle"));
      } catch (error) {
        if (error.name === "AbortError") return;  // superseded by a newer request
        asked = "";
        quietly(error);
      }
      target.removeAttribute("aria-busy");
    };
    const soon = (wait) => { clearTimeout(timer); timer = setTimeout(ask, wait); };
    form.addEventListener("input", (event) => { if (form.checkValidity()) soon(event.detail?.isSliding ? 20 : 200); });
    form.addEventListener("change", () => { if (form.checkValidity()) soon(0); });
    form.addEventListener("submit", (event) => { event.preventDefault(); asked = ""; soon(0); });
  }

  // Filters with counts, which are slow: they are loaded when they are shown, for the address of the page

  const facets = $("details[data-load]");
  if (facets) {
    let shown = null;
    facets.addEventListener("toggle", async () => {
      const query = location.search;
      if (!facets.open || shown === query) return;
      shown = query;
      try {
        const found = await piece(facets.dataset.load + query);
        if (shown === query) $(".facets-inside", facets).replaceChildren(found);
      } catch (error) { shown = null; quietly(error); }
    });
    facets.open = matchMedia("(min-width: 64.01rem)").matches;
  }

  // Parts of a page that take longer to make

  for (const each of all("[data-fetch]")) piece(each.dataset.fetch).then((found) => each.replaceChildren(found), quietly);

  // The value of the day under the pointer, below its chart

  for (const kind of ["pointerover", "pointerout"]) document.addEventListener(kind, (event) => {
    const plot = event.target.closest?.("[data-plot]"), reading = plot && $(".reading", plot);
    if (!reading) return;
    reading.dataset.most ??= reading.textContent;
    const day = event.type === "pointerover" ? $("title", event.target.closest("g") ?? plot) : null;
    reading.textContent = event.target.closest("g") && day ? day.textContent : reading.dataset.most;
  });

  // A slider for a number, in steps that grow with it; and folded rows of a table

  for (const number of all(".slider input[type=number]")) {
    const range = document.createElement("input"), least = 2, most = 6;  // 100 to 1,000,000
    range.type = "range";
    range.min = 0;
    range.max = 200;
    range.setAttribute("aria-label", say("Slide the budget"));
    const follow = () => { range.value = (Math.log10(Math.max(100, number.value)) - least) / (most - least) * 200; };
    range.addEventListener("input", (event) => {
      event.stopPropagation();
      const value = 10 ** (least + range.value / 200 * (most - least)), unit = 10 ** Math.floor(Math.log10(value) - 1);
      number.value = Math.round(value / unit) * unit;
      number.dispatchEvent(new CustomEvent("input", { bubbles: true, detail: { isSliding: true } }));
    });
    range.addEventListener("change", (event) => event.stopPropagation());
    number.addEventListener("input", (event) => { if (!event.detail?.isSliding) follow(); });
    follow();
    number.after(range);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-unfold]");
    if (!button) return;
    const isOpen = button.closest("tbody").classList.toggle("unfolded");
    button.setAttribute("aria-expanded", isOpen);
  });

  // Menus of rows: a click elsewhere and Escape close them

  function closeMenus() {
    for (const each of all(".row-menu > .card")) {
      each.previousElementSibling.setAttribute("aria-expanded", "false");
      each.remove();
    }
  }

  function openRowMenu(link) {
    const made = $("#row-menu").content.cloneNode(true);
    if (!("owned" in link.dataset)) $("[data-owner]", made)?.remove();
    for (const each of all("a", made)) each.href = link.href.split("#")[0] + each.dataset.to;
    link.after(made);
    link.setAttribute("aria-expanded", "true");
    $(".card a", link.parentElement).focus();
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.(".row-menu > a");
    const isOpen = link?.getAttribute("aria-expanded") === "true";
    closeMenus();
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (!isOpen) openRowMenu(link);
  });
  document.addEventListener("keydown", (event) => {
    const link = event.key === "Escape" && $(".row-menu > [aria-expanded=true]");
    if (!link) return;
    closeMenus();
    link.focus();
  });

  // Updates of the list of conversations

  const list = $("#list[data-refresh]");
  if (list) setInterval(async () => {
    // Older titles are not refreshed: thousands of titles would be searched each time.
    const isOlder = () => new URLSearchParams(location.search).has("titles");
    const isBusy = () => document.hidden || isOlder() || list.contains(document.activeElement) || list.matches(":active") || $(".walked", list);
    const url = location.href;
    if (isBusy()) return;
    try {
      const found = await piece(url);
      if (isBusy() || location.href !== url) return;
      const now = found.querySelector(".rows")?.textContent, before = $(".rows", list)?.textContent;
      if (now !== before) list.replaceChildren(found);
    } catch (error) { quietly(error); }
  }, 5000);

  // A conversation: loads older and newer messages on scrolling, and removes those that are far from the view

  const log = $("#messages");
  const MOST = 240;
  let busy = false, tail = null;

  function further(kind, cursor) {
    const url = new URL(location.href);
    url.hash = "";
    for (const name of ["at", "before", "after"]) url.searchParams.delete(name);
    url.searchParams.set(kind === "older" ? "before" : "after", cursor);
    const link = document.createElement("a");
    link.className = "further";
    link.dataset[kind] = "";
    link.href = url;
    link.textContent = kind === "older" ? say("Older messages") : say("Newer messages");
    return link;
  }

  function trim(kind) {
    const messages = all(".message", log);
    const extra = messages.length - MOST;
    if (extra <= 0) return;
    const gone = kind === "older" ? messages.slice(-extra) : messages.slice(0, extra);
    const edge = kind === "older" ? messages[messages.length - extra - 1] : messages[extra];
    const side = kind === "older" ? "newer" : "older";
    $(`.further[data-${side}]`, log)?.remove();
    const range = document.createRange();  // includes the whitespace between elements
    if (kind === "older") range.setStartBefore(gone[0]); else range.setStartBefore(log.firstChild);
    if (kind === "older") range.setEndAfter(log.lastChild); else range.setEndBefore(edge);
    range.deleteContents();
    const link = further(side, edge.dataset.cursor);
    if (side === "newer") { log.append(link); stopTail(); } else log.prepend(link);
    watcher.observe(link);
  }

  async function extend(link) {
    if (busy) return;
    busy = true;
    watcher.unobserve(link);
    const kind = "older" in link.dataset ? "older" : "newer";
    try {
      const found = await piece(link.href);
      found.querySelector(kind === "older" ? "[data-newer]" : "[data-older]")?.remove();
      const anchor = kind === "older" ? $(".message", log) : null;
      const top = anchor?.getBoundingClientRect().top ?? 0;
      const more = found.querySelector(".further");
      const beyond = kind === "older" ? "previousSibling" : "nextSibling";
      while (link[beyond]) link[beyond].remove();  // remove whitespace, which would accumulate
      link.replaceWith(found);
      days(log);
      if (anchor) scrollBy({ top: anchor.getBoundingClientRect().top - top, behavior: "instant" });
      trim(kind);
      if (more) watcher.observe(more);
      else if (kind === "newer") startTail();
    } catch (error) {
      quietly(error);
      setTimeout(() => { if (link.isConnected) watcher.observe(link); }, 3000);
    } finally { busy = false; }
  }

  const watcher = new IntersectionObserver((seen) => {
    for (const each of seen) if (each.isIntersecting) extend(each.target);
  }, { rootMargin: "900px 0px" });

  // Live

  let wait = 2000;

  function startTail() {
    if (!log?.dataset.tail || tail || $(".further[data-newer]", log)) return;
    const last = all(".message", log).at(-1)?.dataset.cursor;
    const url = new URL(log.dataset.tail, location.href);
    if (last) url.searchParams.set("after", last);
    tail = new EventSource(url);
    tail.addEventListener("open", () => { connected(true); wait = 2000; });
    tail.addEventListener("error", () => {
      connected(false);
      if (tail?.readyState !== EventSource.CLOSED) return;
      // Browsers reconnect after a lost connection, but not after an error response, such as that of a proxy.
      tail = null;
      setTimeout(startTail, wait);
      wait = Math.min(2 * wait, 60000);
    });
    tail.addEventListener("message", (event) => arrived(JSON.parse(event.data)));
  }

  // Hide both when there is no live tail.
  function connected(is) {
    if (!$("#live")) return;
    $("#live").hidden = is !== true;
    $("#lost").hidden = is !== false;
    if (is) all("[data-away]").forEach((each) => each.remove());
  }

  function stopTail() {
    tail?.close();
    tail = null;
    connected();
  }

  function arrived({ seq, html }) {
    const made = document.createElement("template");
    made.innerHTML = html;
    prepare(made.content);
    const message = made.content.querySelector(".message");
    const atEnd = innerHeight + scrollY > document.documentElement.scrollHeight - 400 || document.activeElement?.closest?.(".write");
    const there = document.getElementById(`m${seq}`);
    const results = all(".result[data-result]", message);
    const calls = results.map((each) => $(`.call[data-call="${CSS.escape(each.dataset.result)}"]`, log));
    if (there?.classList.contains("result")) results.forEach((each) => { each.id = there.id; there.replaceWith(each); });
    else if (there) renew(there, message);
    else if (results.length && calls.every(Boolean) && message.classList.contains("tool")) {
      results.forEach((each, at) => { calls[at].append(each); $("summary .state", calls[at])?.remove(); each.id = `m${seq}`; });
    } else {
      log.append(message);
      $(".nothing")?.remove();
      trim("newer");
    }
    days(log);
    if (atEnd) toEnd();
  }

  // Keeps open details and the focus when a growing message is replaced.
  function renew(there, message) {
    const before = all("details", there), focused = document.activeElement;
    const hasFocus = there === focused;
    // A finished message has more links: the focus stays on the same kind of them.
    const alike = (from) => all(focused.localName, from).filter((each) => each.className === focused.className);
    const at = there.contains(focused) ? alike(there).indexOf(focused) : -1;
    all("details", message).forEach((each, number) => { each.open = before[number]?.open ?? false; });
    message.classList.toggle("walked", there.classList.contains("walked"));
    there.replaceWith(message);
    const focus = hasFocus ? message : at < 0 ? null : alike(message)[at];
    focus?.focus({ preventScroll: true });
  }

  // Heights of messages that were not drawn yet are estimates, so the end moves while earlier messages are drawn.
  function toEnd(frames = 8, hash = location.hash) {
    if (location.hash !== hash) return;  // the reader has followed a link meanwhile
    $("#end").scrollIntoView({ block: "end", behavior: "instant" });
    if (frames) requestAnimationFrame(() => toEnd(frames - 1, hash));
  }

  if (log) {
    days(log);
    all(".further", log).forEach((each) => watcher.observe(each));
    if (["", "#end"].includes(location.hash) && !/[?&](at|before|after)=/.test(location.search)) {
      // A conversation opens at its end.
      history.scrollRestoration = "manual";
      toEnd();
    }
    startTail();
    addEventListener("pagehide", stopTail);
    addEventListener("pageshow", (event) => { if (event.persisted) startTail(); });
  }

  // The first and the last message, which may not be loaded

  function go(url) {
    history.scrollRestoration = "manual";
    if (url === location.href) location.reload(); else location.href = url;
  }

  function toBeginning() {
    const link = $("a[data-beginning]");
    if (link && $(".further[data-older]", log)) go(link.href); else scrollTo({ top: 0, behavior: "instant" });
  }

  function toLast() {
    if (!log) return document.body.scrollIntoView({ block: "end" });
    if (!$(".further[data-newer]", log)) return toEnd();
    const url = new URL(location.href);
    url.hash = "#end";
    for (const name of ["at", "before", "after"]) url.searchParams.delete(name);
    go(url.href);
  }

  $("a[data-beginning]")?.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    toBeginning();
  });

  // The head of a conversation stays below the header, whose height depends on the window and the font.

  if (log) new ResizeObserver(([header]) => {
    document.documentElement.style.setProperty("--top-height", `${Math.floor(header.borderBoxSize[0].blockSize)}px`);
  }).observe($(".top"));

  // Links between a call and its result: scroll to the target if it is already loaded

  log?.addEventListener("click", (event) => {
    const there = document.getElementById(event.target.closest?.("a[data-to]")?.dataset.to ?? "");
    if (!there) return;
    event.preventDefault();
    const message = there.closest(".message") ?? there;
    message.scrollIntoView({ block: "center" });
    message.focus({ preventScroll: true });
  });

  // Writing: the answer arrives through the tail. Text that could not be sent stays in the box; sent again, it has the
  // same id, and is stored once even if the first attempt was successful.

  function newId() {
    const bytes = [...crypto.getRandomValues(new Uint8Array(10))];
    return `msg_${Date.now().toString(16).padStart(12, "0")}${bytes.map((each) => each.toString(16).padStart(2, "0")).join("")}`;
  }

  for (const form of all("form[data-write]")) {
    const box = $("textarea", form), kept = `hansard draft ${location.pathname}`;
    let unsent = "", id = "";
    // What was typed outlives a reload, and a server that is away.
    box.value ||= sessionStorage.getItem(kept) ?? "";
    const forget = () => { if (box.value) sessionStorage.setItem(kept, box.value); else sessionStorage.removeItem(kept); };
    box.addEventListener("input", () => sessionStorage.setItem(kept, box.value));
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form.requestSubmit($("button.primary", form)); }
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      $(".problem", form)?.remove();
      const sent = new URLSearchParams(new FormData(form, event.submitter));
      const words = box.value, message = new URLSearchParams(sent);
      message.delete("ask");
      if (message.toString() !== unsent) { unsent = message.toString(); id = newId(); }
      sent.set("id", id);
      box.value = "";
      try {
        const answer = await fetch(form.action, { method: "POST", body: sent, credentials: "same-origin" });
        if (!answer.ok) throw new Error(say("The message was not stored ({status}).", { status: answer.status }));
        unsent = "";
        forget();
        if (tail?.readyState !== EventSource.OPEN) location.href = answer.url;
      } catch (error) {
        const problem = document.createElement("p");
        problem.className = "problem";
        problem.role = "alert";
        problem.textContent = error.message;
        // Those of a lost connection are removed when it is back.
        if (error instanceof TypeError) problem.dataset.away = "";
        if (error instanceof TypeError && log && $(`.open[href$="/m/${id}"]`, log)) {
          problem.textContent = say("The server does not answer. Your message is stored; its answer may be missing or incomplete.");
          unsent = "";
          forget();
        } else {
          if (error instanceof TypeError) problem.textContent = say("The server does not answer. What you wrote is still here.");
          box.value ||= words;
        }
        $(".problem", form)?.remove();
        box.after(problem);
      }
    });
  }

  // What can be done to a message, in place. Without this script the same forms are on the message's own page.

  const menuTemplate = $("#message-menu");

  function closeMenu(message) {
    all(".menu, .editing", message).forEach((each) => each.remove());
    $(".open", message)?.setAttribute("aria-expanded", "false");
  }

  function openMenu(message, link) {
    const made = menuTemplate.content.cloneNode(true);
    for (const form of all("form", made)) {
      form.action = `${link.href}/${form.getAttribute("action").split("/").pop()}`;
      if (form.dataset.for && form.dataset.for !== message.dataset.role) form.remove();
    }
    const label = $("[name=add]", made), editing = $(".editing", made), buttons = $(".buttons", made);
    label.id += message.id;
    label.previousElementSibling.htmlFor = label.id;
    const edit = document.createElement("button");
    edit.type = "button";
    edit.textContent = say("Edit");
    edit.addEventListener("click", () => startEditing(message, link, edit));
    const whole = document.createElement("a");
    whole.className = "button";
    whole.href = link.href;
    whole.textContent = say("Details");
    buttons.prepend(edit);
    buttons.append(whole);
    editing.hidden = true;
    $(".by", message).after(made);
    link.setAttribute("aria-expanded", "true");
    $(".menu button", message)?.focus();
  }

  async function startEditing(message, link, button) {
    const editing = $(".editing", message), box = $("textarea", editing);
    try {
      const answer = await fetch(`${link.href}/raw`, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(say("The message cannot be read ({status}).", { status: answer.status }));
      const { content } = await answer.json();
      if (typeof content !== "string") throw new Error(say("Only plain text can be edited here: this content is structured."));
      box.value ||= content;
      editing.hidden = false;
      box.focus();
    } catch (error) { complain(button.closest(".menu"), error); }
  }

  function complain(where, error) {
    $(".problem", where)?.remove();
    const problem = document.createElement("p");
    problem.className = "problem";
    problem.role = "alert";
    problem.textContent = error instanceof TypeError ? say("The server does not answer. Nothing was lost: try again.") : error.message;
    where.append(problem);
  }

  if (menuTemplate) log?.addEventListener("click", (event) => {
    const link = event.target.closest?.(".message .open");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const message = link.closest(".message");
    if ($(".menu", message)) closeMenu(message); else openMenu(message, link);
  });

  log?.addEventListener("keydown", (event) => {
    const message = event.key === "Escape" && event.target.closest?.(".message:has(.menu)");
    if (message) { closeMenu(message); $(".open", message).focus(); }
  });

  log?.addEventListener("submit", async (event) => {
    const form = event.target.closest("form[data-in-place]");
    if (!form) return;
    event.preventDefault();
    const message = form.closest(".message"), button = event.submitter;
    const sent = new URLSearchParams(new FormData(form, button));
    $(".problem", form)?.remove();
    button.disabled = true;
    form.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(form.action, { method: "POST", body: sent, credentials: "same-origin" });
      if (!answer.ok) throw new Error(say("Nothing was changed ({status}).", { status: answer.status }));
      if (form.dataset.inPlace === "go") return go(answer.url);
      const made = document.createElement("template");
      made.innerHTML = await answer.text();
      prepare(made.content);
      const newer = made.content.getElementById(message.id);
      if (newer) renew(message, newer); else go(answer.url);
    } catch (error) {
      sessionStorage.removeItem(LATER);
      complain(form, error);
    } finally {
      button.disabled = false;
      form.removeAttribute("aria-busy");
    }
  });

  // Answers to forms that lead to another page: the form asks for none, and the next page does, to show it as it arrives

  const LATER = "hansard answer", isAwaited = sessionStorage.getItem(LATER) !== null;
  sessionStorage.removeItem(LATER);

  document.addEventListener("formdata", (event) => {
    if (!event.target.matches("[data-later]")) return;
    event.formData.set("later", "yes");
    sessionStorage.setItem(LATER, "yes");
  });

  async function askForAnswer(form) {
    const sent = new URLSearchParams({ proof: $("[name=proof]", form).value });
    try {
      const answer = await fetch(form.action.replace(/say$/, "answer"), { method: "POST", body: sent, credentials: "same-origin" });
      if (!answer.ok) throw new Error(say("There is no answer ({status}).", { status: answer.status }));
      if (tail?.readyState !== EventSource.OPEN) go(answer.url);
    } catch (error) { complain(form, error); }
  }

  if (isAwaited && $("form[data-write]")) askForAnswer($("form[data-write]"));

  // A share's address in full, which the server does not know behind a proxy

  for (const link of all("a[data-copy-address]")) {
    link.textContent = link.href;
    if (navigator.clipboard) link.after(copyButton(say("Copy the address"), () => link.href));
  }

  // Scrolls opened delete forms into view

  document.addEventListener("toggle", (event) => {
    if (event.target.matches?.(".danger[open]")) event.target.scrollIntoView({ block: "nearest" });
  }, true);

  // Another language, for the same address

  for (const each of all("a[data-language]")) each.addEventListener("click", () => {
    const url = new URL(location.href);
    url.searchParams.set("lang", each.lang);
    each.href = url;
  });

  // Copying

  document.addEventListener("click", async (event) => {
    const link = event.target.closest?.("a[data-copy]");
    if (!link || !navigator.clipboard) return;
    event.preventDefault();
    const words = link.dataset.words ??= link.textContent;
    try {
      const answer = await fetch(link.href, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(`${answer.status}`);
      await navigator.clipboard.writeText(await answer.text());
      link.textContent = say("Copied");
    } catch { location.href = link.href; }
    setTimeout(() => { link.textContent = words; }, 5000);
  });

  // Colours: a cookie, so that the server knows them before the first paint

  const button = $("[data-colours-button]");
  const colours = { "": ["◐", say("Colours: as your system")], light: ["☀", say("Colours: light")], dark: ["☾", say("Colours: dark")] };

  function choose(chosen) {
    const root = document.documentElement, [sign, name] = colours[chosen];
    if (chosen) root.dataset.colours = chosen; else delete root.dataset.colours;
    $("meta[name=color-scheme]").content = chosen || "light dark";
    button.textContent = sign;
    button.title = name;
    button.setAttribute("aria-label", button.title);
    button.hidden = false;
  }

  function recolour() {
    const names = Object.keys(colours), chosen = names[(names.indexOf(document.documentElement.dataset.colours ?? "") + 1) % 3];
    document.cookie = `hansard_colours=${chosen}; path=/; max-age=${chosen ? 31536000 : 0}; samesite=lax`;
    choose(chosen);
  }
  if (button) {
    choose(document.documentElement.dataset.colours ?? "");
    button.addEventListener("click", recolour);
  }

  // Search from anywhere: Ctrl-K or ⌘K

  const palette = $("#palette");
  if (palette) {
    const box = $("input", palette), form = $("form", palette), found = $(".palette-found", palette);
    let timer = 0, going = null;
    if (/Mac|iPhone|iPad/.test(navigator.platform)) all(".find kbd").forEach((each) => { each.textContent = "⌘K"; });
    const look = async () => {
      going?.abort();
      if (!box.value.trim()) return found.replaceChildren();
      going = new AbortController();
      const url = new URL(`${form.action}?${new URLSearchParams({ q: box.value })}`);
      try {
        const made = await piece(url, going.signal);
        // Links of a piece are relative to its own address, which may have another depth than this page.
        for (const each of all("a[href]", made)) each.href = new URL(each.getAttribute("href"), url);
        made.querySelector(".rows")?.removeAttribute("data-walk");
        found.replaceChildren(made);
      } catch (error) {
        if (error.name === "AbortError") return;
        const problem = document.createElement("p");
        problem.className = "problem";
        problem.textContent = say("The server does not answer.");
        found.replaceChildren(problem);
        quietly(error);
      }
    };
    box.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 200); });
    palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
    palette.addEventListener("keydown", (event) => {
      if (!["ArrowDown", "ArrowUp"].includes(event.key)) return;
      event.preventDefault();
      const stops = [box, ...all("a.row", found)], at = stops.indexOf(document.activeElement);
      stops[Math.min(stops.length - 1, Math.max(0, at + (event.key === "ArrowDown" ? 1 : -1)))].focus();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
      event.preventDefault();
      if (palette.open) return palette.close();
      palette.showModal();
      box.select();
    });
  }

  // The keyboard

  const home = $(".brand")?.href ?? location.href;
  const places = { o: "", c: "conversations", s: "search", a: "admin" };
  let going = false, gone = 0;

  function walk(step) {
    const items = all("[data-walk] > li, [data-walk] > tr, #messages .message");
    if (!items.length) return;
    const at = items.findIndex((each) => each.classList.contains("walked"));
    const nearest = items.findIndex((each) => each.getBoundingClientRect().bottom > 80);
    const to = Math.min(items.length - 1, Math.max(0, at < 0 ? (nearest < 0 ? 0 : nearest) : at + step));
    items[at]?.classList.remove("walked");
    items[to].classList.add("walked");
    const focus = $("a.row, a.to", items[to]) ?? items[to];
    focus.focus({ preventScroll: true });
    items[to].scrollIntoView({ block: "nearest" });
  }

  function typed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur?.();
      return;
    }
    const key = event.key;
    if (going) {
      going = false;
      if (key in places && (key !== "a" || $('nav a[href$="admin"]'))) return void (location.href = new URL(places[key], home));
      if (key === "g") return toBeginning();
      if (key === "e") return toLast();
    }
    if (key === "/") { event.preventDefault(); ($("main input[type=search]") ?? $("#find"))?.focus(); }
    else if (key === "j") walk(1);
    else if (key === "k") walk(-1);
    else if (key === "g") { going = true; clearTimeout(gone); gone = setTimeout(() => { going = false; }, 5000); }
    else if (key === "o") { const to = $(".walked a.row, .walked a.to") ?? $(".walked .open"); if (to) location.href = to.href; }
    else if (key === "Home" && log) { event.preventDefault(); toBeginning(); }
    else if (key === "End" && log) { event.preventDefault(); toLast(); }
    else if (key === "d") button?.click();
    else if (key === "?") $("#keys")?.showModal();
  }
  document.addEventListener("keydown", typed);
  for (const each of all("[data-keys]")) { each.hidden = false; each.addEventListener("click", () => $("#keys").showModal()); }

  prepare(document);
  setInterval(() => { if (!document.hidden) localise(); }, 60000);
})();
