package cli

import (
	"bytes"
	"testing"
	"time"
)

func TestDurationsAreReadable(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0ms": 0, "120ms": 120 * time.Millisecond, "12s": 12*time.Second + 900*time.Millisecond,
		"3m12s": 192 * time.Second,
		"3m":    3 * time.Minute, "3h12m": 192*time.Minute + 59*time.Second, "2d4h": 52 * time.Hour,
		"30d": 30 * 24 * time.Hour, "-5s": -5 * time.Second,
	} {
		if got := Readable(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestProgressIsShown(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	var stderr bytes.Buffer
	p := &Program{Err: &stderr, Now: func() time.Time {
		now = now.Add(2 * time.Second)
		return now
	}}
	progress := p.Counter("record", "records")
	for range 5 {
		progress(1000)
	}
	if want := "2000 records read\n4000 records read\n"; stderr.String() != want {
		t.Errorf("%s, want %s", &stderr, want)
	}
}
