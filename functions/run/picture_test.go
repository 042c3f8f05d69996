package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "write the picture of the page, with Chromium")

// The picture of README.md has a digest of the files of the page, since its pixels depend on the fonts of a machine.
func TestThePictureShowsThePage(t *testing.T) {
	const file = "page.png"
	digest := sha256.New()
	for _, name := range []string{"index.html", "page.css", "page.js"} {
		text, err := files.ReadFile("page/" + name)
		if err != nil {
			t.Fatal(err)
		}
		digest.Write(text)
	}
	source := fmt.Appendf(nil, "SHA-256 %x", digest.Sum(nil))
	if picture, err := os.ReadFile(file); err == nil && bytes.Contains(picture, source) && !*update {
		return
	} else if !*update {
		t.Fatalf("%s is older than the page: %v. Write it: go test ./functions/run -run Picture -update", file, err)
	}
	p := newTab(t)
	_, url := served(t)
	p.open(url, 1000, 600)
	for _, button := range [][2]string{{"Replace the token", "refreshed"}, {"Send", "accepted"},
		{"Send a duplicate", "duplicate"}, {"Send a forged webhook", "signature-mismatch"}} {
		p.press(button[0], button[1])
	}
	p.evaluate(`document.getElementById("actions").scrollTo(0, 0); document.activeElement.blur()`)
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	// Programs ignore what comes after the last chunk.
	if err := os.WriteFile(file, append(picture, source...), 0o644); err != nil {
		t.Fatal(err)
	}
}
