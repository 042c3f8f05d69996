package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"slices"
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
	source := fmt.Appendf(nil, "tEXtSource\x00SHA-256 %x", digest.Sum(nil))
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
	picture = withFewColors(t, picture)
	// A chunk has its length without the type, the type, the data, and a checksum of both (PNG specification, 5.3,
	// https://www.w3.org/TR/png/#5Chunk-layout). The last one, of 12 bytes, ends the picture.
	end := len(picture) - 12
	chunk := binary.BigEndian.AppendUint32(nil, uint32(len(source)-4))
	chunk = binary.BigEndian.AppendUint32(append(chunk, source...), crc32.ChecksumIEEE(source))
	if err := os.WriteFile(file, slices.Concat(picture[:end], chunk, picture[end:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

// withFewColors returns a PNG with the most frequent colors only, which is smaller.
func withFewColors(t *testing.T, picture []byte) []byte {
	t.Helper()
	all, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	size, pixels := all.Bounds(), map[color.Color]int{}
	for y := range size.Dy() {
		for x := range size.Dx() {
			pixels[all.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(pixels),
		func(a, b color.Color) int { return cmp.Compare(pixels[b], pixels[a]) })
	few := image.NewPaletted(size, colors[:min(len(colors), 64)])
	draw.Draw(few, size, all, image.Point{}, draw.Src)
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, few); err != nil {
		t.Fatal(err)
	}
	return small.Bytes()
}
