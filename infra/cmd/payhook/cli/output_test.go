package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
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
		"ShowLine": {func(p *Program) error { return p.ShowLine(d.Rows[1], nil) },
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
	progress := p.Counter("proof", "proofs")
	for range 5 {
		progress(1000)
	}
	if want := "2000 proofs read\n4000 proofs read\n"; stderr.String() != want {
		t.Errorf("%s, want %s", &stderr, want)
	}
}

// hostile controls a terminal, or is no text: ESC, BEL, backspace, a carriage return, DEL, CSI of C1, a right-to-left
// override, a byte order mark, a tag character, a private one, and two bytes that are no UTF-8.
const hostile = "a\x1b[2J\a\b\rb\x7f\u009b2J\u202e\ufeff\U000e0041\ue000\xff\x9b"

// No text of a stranger controls the terminal, wherever a command writes it. JSON has the same meaning as before.
func TestWhatControlsATerminalIsEscaped(t *testing.T) {
	noon := func() time.Time { return time.Unix(0, 0) }
	var all []string
	for _, asJSON := range []bool{false, true} {
		var out, stderr bytes.Buffer
		p := &Program{Out: &out, Err: &stderr, Now: noon}
		root := p.Root()
		document := map[string]string{hostile: hostile}
		root.AddCommand(&cobra.Command{Use: "do", RunE: func(cmd *cobra.Command, _ []string) error {
			p.Show(document)
			p.ShowLine(document, nil)
			List(p, []map[string]string{document})
			fmt.Fprintln(p.Out, hostile)
			fmt.Fprintln(p.Err, hostile)
			return errors.New(hostile)
		}})
		p.Run(t.Context(), root, []string{"do", fmt.Sprint("--json=", asJSON)})
		p.Run(t.Context(), root, []string{hostile})
		p.Run(t.Context(), root, []string{"do", "--" + hostile})
		if asJSON {
			line, _, _ := strings.Cut(out.String(), "\n")
			var got map[string]string
			want := strings.TrimSuffix(hostile, "\xff\x9b") + "\ufffd\ufffd"
			if err := json.Unmarshal([]byte(line), &got); err != nil || got[want] != want {
				t.Errorf("%v: %q", err, got)
			}
		}
		all = append(all, out.String(), stderr.String())
	}
	controls := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
	for _, text := range all {
		if i := strings.IndexFunc(text, controls); i >= 0 ||
			!utf8.ValidString(text) || !strings.Contains(text, "[2J") {
			t.Errorf("%d: %q", i, text)
		}
	}
}

// A file or another program gets the bytes of a payload.
func TestAPayloadIsExactUnlessATerminalShowsIt(t *testing.T) {
	for _, screen := range []bool{false, true} {
		var out bytes.Buffer
		p := &Program{Out: &out, Screen: screen}
		p.Root()
		if err := p.WritePayload([]byte("{\n\t" + hostile + "é}")); err != nil {
			t.Error(err)
		}
		want := "{\n\t" + hostile + "é}"
		if screen {
			want = "{\n\ta\\u001b[2J\\u0007\\u0008\\u000db\\u007f" +
				"\\u009b2J\\u202e\\ufeff\\udb40\\udc41\\ue000\\xff\\x9bé}"
		}
		if out.String() != want {
			t.Errorf("%q, want %q", &out, want)
		}
	}
}
