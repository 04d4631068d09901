// The page of the moment renews itself from a stream, which the browser opens again by itself after a break.
"use strict";

const live = document.getElementById("live");
const connection = document.getElementById("connection");

function listen() {
  const stream = new EventSource(live.dataset.events);
  stream.addEventListener("figures", (event) => {
    const within = live.contains(document.activeElement) && document.activeElement.getAttribute("href");
    live.innerHTML = event.data; // a template of our own, which has escaped every value
    localTimes(live);
    if (within) live.querySelector(`a[href="${CSS.escape(within)}"]`)?.focus();
    say("live");
  });
  stream.addEventListener("over", () => {
    stream.close();
    say("the session is over; load the page again to sign in");
  });
  stream.onerror = () => {
    say("the connection is lost; trying again");
    if (stream.readyState === EventSource.CLOSED) {
      stream.close();
      setTimeout(listen, 3000);
    }
  };
}

function say(words) {
  if (connection.textContent !== words) connection.textContent = words;
}

listen();
