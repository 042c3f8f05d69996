package console

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// newBrowser returns a context of headless Chromium, which ends with the test and after two minutes.
// It skips the test where there is no Chromium.
func newBrowser(t *testing.T) context.Context {
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
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(found))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium requires it of root
	}
	allocated, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)
	// The browser ends with the context that it is started with, so that has no deadline.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// browse runs actions of the browser.
func browse(ctx context.Context, t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, actions...); err != nil {
		text, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
		t.Fatalf("%v\n%s", err, text)
	}
}

// evaluate returns the value of a JavaScript expression.
func evaluate[T any](ctx context.Context, t *testing.T, expression string) T {
	t.Helper()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// until waits until a JavaScript expression is true. Its policy does not let the page
// evaluate text, as chromedp.Poll would.
func until(expression string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](`new Promise((resolve) => {
		const look = () => (`+expression+`) ? resolve(true) : setTimeout(look, 20);
		look();
	})`, chromedp.EvalAwaitPromise)
}

// shows waits until the page shows a text.
func shows(text string) chromedp.Action[chromedp.Void] {
	return until(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}
