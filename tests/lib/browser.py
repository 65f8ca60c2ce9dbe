# SPDX-License-Identifier: MIT
"""Headless Chromium, driven by chromedriver over WebDriver: a page is opened, used and asked what it shows."""
import base64
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request


class Browser:
    """One window, closed where its `with` ends. chromedriver picks a free port and says which."""

    def __init__(self):
        self.session = None
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.driver.stdout:
            port = re.search(r"started successfully on port (\d+)", line)
            if port:
                self.base = f"http://127.0.0.1:{port[1]}"
                break
        arguments = ["--headless=new", "--disable-gpu", "--window-size=1280,900"] + (["--no-sandbox"] if os.geteuid() == 0 else [])
        wanted = {"timeouts": {"script": 300000}, "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def call(self, method, path, body=None):
        url = self.base + (f"/session/{self.session}" if self.session else "") + path
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, method=method, data=data, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            sys.exit(f"{method} {path}: {json.load(error)['value']['message']}")

    def js(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def command(self, name, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def screen(self, width, dark=False):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def load(self, url):
        self.call("POST", "/url", {"url": url})

    def element(self, selector):
        return next(iter(self.call("POST", "/element", {"using": "css selector", "value": selector}).values()))

    def type(self, selector, text):
        """Types into a field as a user does."""
        self.call("POST", f"/element/{self.element(selector)}/value", {"text": text})

    def click(self, selector):
        """Clicks; once more where the page moved between the look at the element's place and the click, as it does while text comes."""
        for left in reversed(range(50)):
            try:
                return self.call("POST", f"/element/{self.element(selector)}/click", {})
            except SystemExit as error:
                if left == 0 or "intercepted" not in str(error):
                    raise
                time.sleep(0.1)

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("GET", "/screenshot")))

    def said(self):
        """What the console said since the last call."""
        return self.call("POST", "/se/log", {"type": "browser"})

    def check_silent(self):
        """Fails where the page has said something since the last call, which our pages do in errors alone."""
        said = self.said()
        assert not said, said

    def keys(self, text):
        actions = [{"type": k, "value": c} for c in text for k in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.session:
            self.call("DELETE", "")
        self.driver.terminate()
        self.driver.wait()


def groups(arguments):
    """Arguments between "--": one browser opens all pages of a test."""
    of = [[]]
    for argument in arguments:
        if argument == "--":
            of.append([])
        else:
            of[-1].append(argument)
    return of
