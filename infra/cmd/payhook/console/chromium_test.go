package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// tab is a page of headless Chromium, which runs methods of the DevTools protocol:
// https://chromedevtools.github.io/devtools-protocol
type tab struct {
	*testing.T
	requests  *os.File
	responses *bufio.Reader
	session   string
	last      int // id of a request
}

// newTab returns an empty page. Chromium ends with the test and after two minutes.
// newTab skips the test where there is no Chromium.
func newTab(t *testing.T) *tab {
	t.Helper()
	found := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			found = path
			break
		}
	}
	if found == "" {
		t.Skip("there is no Chromium: install the package chromium to test the page in a browser")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	cmd := exec.CommandContext(ctx, found, "--headless", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(),
		"--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars")
	if os.Getuid() == 0 {
		cmd.Args = append(cmd.Args, "--no-sandbox") // Chromium requires it of root
	}
	theirs, requests, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	responses, theirResponses, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{theirs, theirResponses} // file descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	theirResponses.Close()
	t.Cleanup(func() {
		requests.Close() // ends Chromium
		_ = cmd.Wait()
		responses.Close()
		cancel()
	})
	p := &tab{T: t, requests: requests, responses: bufio.NewReader(responses)}
	target := p.call("Target.createTarget", map[string]any{"url": "about:blank"})
	attached := p.call("Target.attachToTarget", map[string]any{"targetId": target["targetId"], "flatten": true})
	p.session = attached["sessionId"].(string)
	return p
}

// call runs a method and returns its result.
func (p *tab) call(method string, params map[string]any) map[string]any {
	p.Helper()
	p.last++
	request := map[string]any{"id": p.last, "method": method, "params": params}
	if p.session != "" {
		request["sessionId"] = p.session
	}
	text, err := json.Marshal(request)
	if err != nil {
		p.Fatal(err)
	}
	if _, err := p.requests.Write(append(text, 0)); err != nil {
		p.Fatal(err)
	}
	for {
		text, err := p.responses.ReadBytes(0)
		if err != nil {
			p.Fatalf("Chromium, %s: %v", method, err)
		}
		var response struct {
			ID     int // 0 for an event
			Result map[string]any
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(text[:len(text)-1], &response); err != nil {
			p.Fatal(err)
		}
		if response.ID != p.last {
			continue
		}
		if response.Error != nil {
			p.Fatalf("Chromium, %s: %s", method, response.Error.Message)
		}
		return response.Result
	}
}

// evaluate returns the value of a JavaScript expression, or of the promise that it is.
func (p *tab) evaluate(expression string) any {
	p.Helper()
	result := p.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true,
		"returnByValue": true})
	if result["exceptionDetails"] != nil {
		p.Fatalf("%s: %v", expression, result)
	}
	return result["result"].(map[string]any)["value"]
}

// until waits until a JavaScript expression is true.
func (p *tab) until(expression string) {
	p.Helper()
	p.evaluate(`new Promise((resolve, reject) => {
		const end = Date.now() + 60_000;
		const look = () => {
			if (` + expression + `) resolve();
			else if (Date.now() > end) reject(document.body.innerText);
			else setTimeout(look, 20);
		};
		look();
	})`)
}

// shows waits until the page shows texts.
func (p *tab) shows(texts ...string) {
	p.Helper()
	for _, text := range texts {
		p.until(fmt.Sprintf("document.body.innerText.includes(%q)", text))
	}
}

// open opens a page with a width in pixels.
func (p *tab) open(url string, width int) {
	p.Helper()
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900,
		"deviceScaleFactor": 1, "mobile": false})
	p.call("Page.navigate", map[string]any{"url": url})
	p.until(`document.readyState === "complete"`)
}

// click clicks on the element that an expression returns, once it is visible and nothing
// covers it. The script clicks, because the page can move before a click with the mouse.
func (p *tab) click(element string) {
	p.Helper()
	p.until(`(() => {
		const element = ` + element + `;
		if (!element) return false;
		element.scrollIntoView({block: "center", behavior: "instant"});
		const box = element.getBoundingClientRect();
		const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
		if (!element.contains(top)) return false;
		element.click();
		return true;
	})()`)
}

// clickButton clicks on the button with a text.
func (p *tab) clickButton(text string) {
	p.Helper()
	p.click(fmt.Sprintf(`[...document.querySelectorAll("button")].find((e) => e.textContent.trim() === %q)`, text))
}
