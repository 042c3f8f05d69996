package console

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
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"payhook.example/infra/cmd/payhook/listen"
)

var update = flag.Bool("update", false, "write the picture of the console")

// The picture of README.md shows this page with this content. It has a digest of both, since its pixels depend on the
// fonts of a machine. go test ./infra/cmd/payhook/console -run Picture -update writes it with Chromium.
func TestPictureShowsThePage(t *testing.T) {
	s := newTestServer(t)
	s.server.name = "stack Payhook (the local run)"
	s.status = `{"checks":[{"name":"token","state":"ok","text":"valid for 58m"},
		{"name":"pending","state":"ok","text":"nothing is pending"},
		{"name":"parked","state":"ok","text":"nothing is open"},
		{"name":"alarms","state":"ok","text":"none of 14 is raised"}]}`
	for _, arrived := range []fmt.Stringer{
		listen.Webhook{Time: "2026-01-31T12:00:00.000Z", Status: 200, Outcome: "accepted", DeliveryID: delivery1,
			Events: 2, IDs: map[string][]string{"published": {event1, event2}},
			MS: map[string]float64{"record": 7, "publish": 15, "mark": 6}},
		listen.Event{EventID: event1, DeliveryID: delivery1, Name: "PAYMENT_STATUS.RELEASED"},
		listen.Event{EventID: event2, DeliveryID: delivery1, Name: "PAYMENT_STATUS.RELEASED"},
		listen.Webhook{Time: "2026-01-31T12:00:05.000Z", Status: 200, Outcome: "accepted", DeliveryID: delivery1,
			Events: 2, IDs: map[string][]string{"duplicate": {event1, event2}}, MS: map[string]float64{"record": 8}},
		listen.Webhook{Time: "2026-01-31T12:00:09.000Z", Status: 401, Outcome: "signature-mismatch",
			Cause: "signature: does not verify", Captured: captured, MS: map[string]float64{"authenticate": 2}},
	} {
		if err := s.actor.feed.show(arrived); err != nil {
			t.Fatal(err)
		}
	}
	digest := sha256.New()
	for _, path := range []string{"/", "/console.css", "/console.js", "/state"} {
		_, text := s.request(t, http.MethodGet, path, "", nil)
		digest.Write([]byte(text))
	}
	messages, _, _ := s.actor.feed.after(0)
	for _, m := range messages {
		digest.Write(m.data)
	}
	const file = "console.png"
	source := fmt.Appendf(nil, "tEXtSource\x00SHA-256 %x", digest.Sum(nil))
	if !*update {
		if picture, err := os.ReadFile(file); err != nil || !bytes.Contains(picture, source) {
			t.Errorf("%s is not of this page: %v. Write it: go test ./infra/cmd/payhook/console -run Picture -update",
				file, err)
		}
		return
	}
	p := newTab(t)
	p.do(chromedp.EmulateViewport(1000, 600), chromedp.Navigate(s.URL))
	p.shows("Connected", "nothing is pending", "duplicate, not published again", "running")
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
	if err := os.WriteFile(file, bytes.Join([][]byte{picture[:end], chunk, picture[end:]}, nil), 0o644); err != nil {
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
	few := image.NewPaletted(size, colors[:min(len(colors), 128)])
	draw.Draw(few, size, all, image.Point{}, draw.Src)
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, few); err != nil {
		t.Fatal(err)
	}
	return small.Bytes()
}
