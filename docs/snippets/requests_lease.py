"""requests_lease.py URL…: fetches pages of one host through a leased proxy, with requests."""

import os, random, sys, threading, time
from contextlib import contextmanager
from urllib.parse import urlsplit

import requests

hub = requests.Session()
hub.trust_env = False  # proxies and certificates of the environment are not for the hub
hub.verify = os.environ.get("SHOAL_CA", True)
hub.headers["Authorization"] = "Bearer " + os.environ["SHOAL_TOKEN"]


def call(method, path, body=None):
    """Calls the lease API, and comes back when it says so."""
    while True:
        answer = hub.request(method, os.environ["SHOAL"] + path, json=body or {}, timeout=30)
        if answer.status_code not in (429, 503) or "Retry-After" not in answer.headers:
            break
        time.sleep(int(answer.headers["Retry-After"]) + random.random())
    if not answer.ok:
        raise RuntimeError(answer.json().get("reason", "") + ": " + answer.json()["message"])
    return answer.json()


@contextmanager
def leased(**wanted):
    """A lease that is renewed in the background and released in the end."""
    lease = call("POST", "/v1/leases", wanted)["leases"][0]
    path, done = "/v1/leases/" + lease["leaseId"], threading.Event()

    def renew(after=lease["renewAfterSeconds"]):
        while not done.wait(after * random.uniform(0.8, 1)):
            after = max(1, call("POST", path + ":renew").get("renewAfterSeconds", 1))

    threading.Thread(target=renew, daemon=True).start()
    try:
        yield lease
    finally:
        done.set()
        call("DELETE", path)


def outcome(page):
    if page.status_code == 429:
        wait = page.headers.get("Retry-After", "")
        return {"kind": "RATE_LIMITED", **({"retryAfter": wait + "s"} if wait.isdigit() else {})}
    return {"kind": {403: "BLOCKED"}.get(page.status_code, "TARGET_ERROR" if page.status_code >= 500 else "OK")}


def main(urls):
    with leased(fleet="crawl/news", target=urlsplit(urls[0]).hostname, ttl="600s") as lease, requests.Session() as pages:
        # Both keys, and http:// in both: it is the proxy's scheme, not the page's.
        pages.proxies = {"http": lease["proxyUrl"], "https": lease["proxyUrl"]}
        for url in urls:
            page = pages.get(url, timeout=60)
            told = call("POST", "/v1/leases/" + lease["leaseId"] + ":report", {"outcome": outcome(page)})
            print(page.status_code, "through", lease["exit"])
            if outcome(page)["kind"] != "OK":
                break  # this exit rests now; lease again to go on by another
            if url != urls[-1]:
                time.sleep(float(told.get("limits", {}).get("minInterval", "0s")[:-1]))


if __name__ == "__main__":
    main(sys.argv[1:])
