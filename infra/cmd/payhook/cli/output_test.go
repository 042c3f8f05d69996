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

// A terminal gets the members of the JSON document: without zeros, and times with how long ago they were.
func TestADocumentIsShownAsItsMembers(t *testing.T) {
	type row struct {
		ID string    `json:"id"`
		At time.Time `json:"at,omitzero"`
		N  int       `json:"n"`
	}
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	type document struct {
		Rows []row          `json:"rows"`
		row                 // without a name of its own
		Text string         `json:"text"`
		List []string       `json:"list"`
		In   map[string]int `json:"in"`
		Zero []int          `json:"zero"`
		Of   []int          `json:"of"` // a zero in a list is shown
		Flag bool           `json:"flag"`
	}
	d := document{[]row{{ID: "a", N: 2}, {ID: "b\x1b", At: noon}}, row{ID: "<c>", At: noon}, `say "x y"`,
		[]string{"p", "q"}, map[string]int{"z": 1, "y": 2, "x": 0}, nil, []int{0}, false}
	for name, test := range map[string]struct {
		write      func(*Program) error
		text, json string
	}{
		"Show": {func(p *Program) error { return p.Show(d) },
			"id    <c>\nat    2026-01-31T12:00:00.000Z (1h ago)\ntext  say \"x y\"\nlist  p, q\nin.y  2\nin.z  1\n" +
				"of    0\n\nrows\nID       N  AT\na        2  \n\"b\\x1b\"     2026-01-31T12:00:00.000Z (1h ago)\n",
			`{"rows":[{"id":"a","n":2},{"id":"b\u001b","at":"2026-01-31T12:00:00Z","n":0}],"id":"<c>",` +
				`"at":"2026-01-31T12:00:00Z","n":0,"text":"say \"x y\"","list":["p","q"],"in":{"x":0,"y":2,"z":1},` +
				`"zero":null,"of":[0],"flag":false}` + "\n"},
		"ShowLine": {func(p *Program) error { return p.ShowLine(d.Rows[1]) },
			`id="b\x1b"  at="2026-01-31T12:00:00.000Z (1h ago)"` + "\n",
			`{"id":"b\u001b","at":"2026-01-31T12:00:00Z","n":0}` + "\n"},
		"List": {func(p *Program) error { return List(p, d.Rows[:1], "n", "at", "id") }, "N  ID\n2  a\n",
			`{"id":"a","n":2}` + "\n"},
		"List of nothing": {func(p *Program) error { return List(p, d.Rows[:0]) }, "", ""},
	} {
		for asJSON, want := range map[bool]string{false: test.text, true: test.json} {
			var out bytes.Buffer
			p := &Program{Out: &out, JSON: asJSON, Now: func() time.Time { return noon.Add(time.Hour) }}
			if err := test.write(p); err != nil || out.String() != want {
				t.Errorf("%s: %v, %q, want %q", name, err, &out, want)
			}
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
