package ledger_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json/jsontext"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"payhook.example/shared/ledger"
)

// A digest is that of the content: neither white space, the order of members nor escapes change it. Everything
// else does, and the text of a number as well: an amount of 101 and one of 101.00 need a person.
func TestADigestIsThatOfTheContent(t *testing.T) {
	const event = `{"a":"x \" y\\/é😀","b":[1,2.0,{"c":null,"d":true}],"é":{},"\ufb33":-0,` +
		`"long":12345678901234567890.10}`
	want := ledger.DigestOf([]byte(event))
	for _, same := range []string{
		" { \"a\" :\t\"x \\\" y\\\\/é😀\" ,\r\n\"b\":[ 1, 2.0 , {\"c\":null,\"d\":true} ],\"é\":{ },\"\\ufb33\":-0 ," +
			"\"long\":12345678901234567890.10} ",
		`{"long":12345678901234567890.10,"\u0061":"\u0078 \u0022 y\u005c\/\u00E9\uD83D\ude00","b":[1,2.0,{"d":true,` +
			`"\u0063":null}],"\u00e9":{},"\uFB33":-0}`,
	} {
		if ledger.DigestOf([]byte(same)) != want {
			t.Errorf("%s has another digest", same)
		}
	}
	for _, change := range [][2]string{{`x \" y`, `x \"y`}, {"2.0", "2"}, {"2.0", "2.00"}, {"2.0", "2e0"},
		{"[1", "[1.0"}, {"-0", "0"}, {"-0", "-0.0"}, {"1,2.0", "2.0,1"}, {`"c":null,`, ""}, {"null", `"null"`},
		{"true", "false"}, {"{}", "[]"}, {`"a"`, `"A"`}, {"é", "e\u0301"}, {"10}", "11}"}} {
		other := strings.Replace(event, change[0], change[1], 1)
		if other == event || ledger.DigestOf([]byte(other)) == want {
			t.Errorf("%s has the same digest", other)
		}
	}
}

var uuidInQuotes = regexp.MustCompile(`^"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"$`)

// reference computes a digest with the standard library alone, in a time that grows with the depth of raw.
func reference(raw []byte) ledger.Digest {
	// What is no JSON is appended as it is.
	text, err := jsontext.AppendFormat(nil, raw, jsontext.ReorderRawObjects(true))
	if err != nil || text[0] != '{' {
		return sha256.Sum256(text)
	}
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	_, _ = dec.ReadToken()
	for dec.PeekKind() == '"' {
		token, _ := dec.ReadToken()
		name := token.String()
		value, _ := dec.ReadValue()
		if name == "eventId" && uuidInQuotes.Match(value) {
			copy(text[int(dec.InputOffset())-len(value):], bytes.ToLower(value))
		}
	}
	return sha256.Sum256(text)
}

// texts has JSON of which the digest is difficult, and what is no JSON.
var texts = []string{
	``, ` `, `{`, `"a`, `"a\`, `nul`, `{"a":1}x`, `{"a":1,}`, `{"b":1,"a":}`, `[1,2`, "\ufeff{}", `{"b":1 "a":2}`, `}`,
	`{"a"}`, `"a"`, `0`, ` -1.50E+2 `, `[]`, `{}`, `[[],{},[{}]]`, `{"b":{},"a":[]}`, ` [ 1 , "\\" , "\"" ] `,
	`{"a":"x \" y\\ "}`, `{"b\\":1,"b\"":"}","b":",","a":"{\"c\":1,\"b\":2}"}`,
	// In UTF-16, U+10000 to U+10FFFF are before U+E000 to U+FFFF.
	"{\"\ufb33\":1,\"\U0001f600\":2,\"\ue000\":3,\"\ud7ff\":4,\"\uffff\":5,\"\U0010ffff\":6,\"é\":7,\"\":8}",
	`{"\ufb33":1,"\ud83d\ude00":2,"\uE000":3,"\uffff":4,"\ud83d\ude01":5,"a\ufb33":6,"a\ud83d\ude00b":7}`,
	`{"\u0061\u0001":1,"a\"":2,"a\/":3,"a\\":4,"a\n":5,"a\u000a0":6,"a":7,"":8,"aa":9}`,
	`{"b":1,"a":2,"b":3}`, `{"a":1,"\u0061":1}`, `[{"c":{"b":1,"b":1},"a":1}]`, // a name twice
	// Not UTF-8.
	"{\"b\":\"\xff\",\"a\":1}", "{\"\xc3\":1,\"\xe9\":2}", `{"b":"\ud800","a":1}`, `{"\udc00\ud800":1,"a":2}`,
	`{"b":{"d":{"f":1,"e":2},"c":3},"a":{"h":[{"j":1,"i":2}],"g":4}}`,
	`{"eventId":"0195E1B1-9C2F-7D7B-8C6A-1F0E3D5A7B9C","b":{"eventId":"0195E1B1-9C2F-7D7B-8C6A-1F0E3D5A7B9C"}}`,
	`{"b":["0195E1B1-9C2F-7D7B-8C6A-1F0E3D5A7B9C"],"event\u0049d":"0195E1B1-9C2F-7D7B-8C6A-1F0E3D5A7B9\u0043"}`,
	`{"eventId":"0195E1B1-9C2F-7D7B-8C6A-1F0E3D5A7B9C ","a":{}}`,
	`{"eventId":["0195E1B1-9C2F-7D7B-8C6A-1F0E3D5A7B9C"]}`,
	`[{"eventId":"0195E1B1-9C2F-7D7B-8C6A-1F0E3D5A7B9C"}]`, `{"eventID":"0195E1B1-9C2F-7D7B-8C6A-1F0E3D5A7B9C"}`,
	strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001),
}

func compareDigest(t testing.TB, raw []byte) {
	t.Helper()
	sent := string(raw)
	if ledger.DigestOf(raw) != reference(raw) || string(raw) != sent {
		t.Fatalf("not the digest of %.1000q", raw)
	}
}

func FuzzDigestOf(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) { compareDigest(t, raw) })
}

// generator writes random JSON.
type generator struct {
	*rand.Rand
	bytes.Buffer
}

// one writes one of these texts.
func (g *generator) one(texts ...string) { g.WriteString(texts[g.IntN(len(texts))]) }

func (g *generator) space() { g.one("", "", "", " ", "\n\t", "\r") }

// text writes a string that begins at random, and ends with a number.
func (g *generator) text(n int) {
	g.WriteByte('"')
	for range g.IntN(6) {
		g.one("a", "b", "Z", " ", "é", "\ud7ff", "\ue000", "\ufb33", "\uffff", "😀", "\U0010ffff", `\"`, `\\`, `\/`,
			`\n`, `\u0000`, `\u001F`, `\u0061`, `\uFB33`, `\ud83d\uDE00`, `\udbff\udfff`, "{", "}", "[", "]", ",", ":",
			"\u2028")
	}
	fmt.Fprintf(g, `%d"`, n)
}

func (g *generator) value(depth int) {
	g.space()
	defer g.space()
	kind := g.IntN(8)
	if depth == 0 || g.Len() > 200_000 {
		kind %= 4
	}
	if kind == 0 {
		g.text(g.IntN(10))
		return
	} else if kind < 4 {
		g.one("0", "-0", "1.50", "12345678901234567890", "1E400", "true", "false", "null")
		return
	}
	brackets := []string{"[]", "{}"}[min(1, kind-4)]
	g.WriteByte(brackets[0])
	for n := range g.IntN(12) {
		if n > 0 {
			g.WriteByte(',')
		}
		if brackets == "{}" {
			g.space()
			if g.text(n); g.IntN(100_000) == 0 {
				g.WriteString(`:0,"twice":0,"twice"`)
			}
			g.space()
			g.WriteByte(':')
		}
		g.value(depth - 1)
	}
	g.space()
	g.WriteByte(brackets[1])
}

func TestADigestIsThatOfTheStandardLibrary(t *testing.T) {
	for _, text := range texts {
		compareDigest(t, []byte(text))
	}
	for _, depth := range []int{9_999, 10_000, 10_001} {
		compareDigest(t, nested(depth, `{"c":0,"b":`, `,"a":1}`))
	}
	g := &generator{Rand: rand.New(rand.NewPCG(1, 2))}
	valid, all := 0, 0
	for all < 40<<20 {
		g.Reset()
		g.value(1 + g.IntN(12))
		raw := g.Bytes()
		if g.IntN(4) == 0 { // mostly no JSON
			raw[g.IntN(len(raw))] = "\"\\{}[],:0 \xff"[g.IntN(11)]
		}
		compareDigest(t, raw)
		if all += len(raw); jsontext.Value(raw).IsValid() {
			valid += len(raw)
		}
	}
	if valid < 25<<20 {
		t.Errorf("%d of %d bytes are JSON", valid, all)
	}
}

// nested returns JSON of so many levels, each between the same texts.
func nested(levels int, before, after string) []byte {
	return []byte(strings.Repeat(before, levels) + "0" + strings.Repeat(after, levels))
}

// The metric is how many times as long as an array of the same objects their nesting takes.
func BenchmarkDigestOfNestedObjects(b *testing.B) {
	const levels = 9_000
	before := `{"z":"` + strings.Repeat("x", 250) + `","m":{"b":1,"a":2},"k":`
	after := `,"c":"` + strings.Repeat("y", 250) + `","a":[1.50,null]}`
	deep, flat := nested(levels, before, after), []byte("["+strings.Repeat(before+"0"+after+",", levels)+"0]")
	b.SetBytes(int64(len(deep) + len(flat)))
	var took [2]time.Duration
	for b.Loop() {
		for i, text := range [][]byte{flat, deep} {
			start := time.Now()
			ledger.DigestOf(text)
			took[i] += time.Since(start)
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "deep/flat")
}
