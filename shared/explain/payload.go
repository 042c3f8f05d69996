package explain

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// payloadForm is another form of the payload, which a sender can have signed.
type payloadForm struct {
	name  string // as in: the payload without its last line feed; "" for the bytes as received
	bytes []byte
}

const bom = "\ufeff"

// maxRewritten limits the JSON that is written again, hundreds of times.
const maxRewritten = 256 << 10

// maxUnpacked limits what is decompressed.
const maxUnpacked = 8 << 20

// payloadForms returns the other forms of a payload: those that differ in bytes around
// the JSON or in the encoding, and those in which a program writes the same JSON again.
func payloadForms(payload []byte) (simple, serialized []payloadForm) {
	seen := map[[sha256.Size]byte]bool{sha256.Sum256(payload): true}
	add := func(to *[]payloadForm, name string, b []byte) {
		if sum := sha256.Sum256(b); !seen[sum] {
			seen[sum] = true
			*to = append(*to, payloadForm{"the payload " + name, b})
		}
	}
	for _, f := range bytesForms(payload) {
		add(&simple, f.name, f.bytes)
	}
	if tree, ok := parseJSON(payload); ok && len(payload) <= maxRewritten {
		for _, s := range styles() {
			add(&serialized, "as JSON that was written again ("+s.name()+")", s.write(tree))
		}
	}
	return simple, serialized
}

func bytesForms(p []byte) (all []payloadForm) {
	add := func(name string, b []byte) { all = append(all, payloadForm{name, b}) }
	unbroken := bytes.ReplaceAll(p, []byte("\r\n"), []byte("\n"))
	broken := bytes.ReplaceAll(unbroken, []byte("\n"), []byte("\r\n"))
	trimmed := bytes.TrimSpace(bytes.TrimPrefix(p, []byte(bom)))

	add("without its last line feed", bytes.TrimSuffix(p, []byte("\n")))
	add("without its last CR LF", bytes.TrimSuffix(p, []byte("\r\n")))
	add("with a line feed at its end", slices.Concat(p, []byte("\n")))
	add("with CR LF at its end", slices.Concat(p, []byte("\r\n")))
	add("without a byte order mark", bytes.TrimPrefix(p, []byte(bom)))
	add("with a byte order mark", slices.Concat([]byte(bom), p))
	add("without white space around it", trimmed)
	add("with line feeds instead of CR LF", unbroken)
	add("with CR LF instead of line feeds", broken)
	add("with line feeds instead of CR LF, and without the last", bytes.TrimSuffix(unbroken, []byte("\n")))
	add("with CR LF instead of line feeds, and one at its end", slices.Concat(broken, []byte("\r\n")))
	add("without line breaks", bytes.ReplaceAll(unbroken, []byte("\n"), nil))
	add("in base64", []byte(base64.StdEncoding.EncodeToString(p)))
	add("in base64url", []byte(base64.RawURLEncoding.EncodeToString(p)))
	sum := sha256.Sum256(p)
	add("as its SHA-256 in hexadecimal", []byte(hex.EncodeToString(sum[:])))
	add("as its SHA-256 in base64", []byte(base64.StdEncoding.EncodeToString(sum[:])))
	add("as its SHA-256 in base64url", []byte(base64.RawURLEncoding.EncodeToString(sum[:])))
	add("as its SHA-256 in binary", sum[:])
	add("left out (no bytes)", nil)

	if b, err := base64.StdEncoding.DecodeString(string(trimmed)); err == nil {
		add("decoded from base64", b)
	}
	var text string
	if json.Unmarshal(p, &text) == nil {
		add("decoded from a JSON string", []byte(text))
	}
	if quoted, err := jsontext.AppendQuote(nil, p); err == nil {
		add("as a JSON string", quoted)
	}
	if form, err := url.ParseQuery(string(p)); err == nil && bytes.Contains(p, []byte("=")) {
		for name, values := range form {
			add("decoded from the form field "+strconv.Quote(name), []byte(values[0]))
		}
	}
	if plain, err := url.QueryUnescape(string(p)); err == nil {
		add("decoded from percent-encoding", []byte(plain))
	}
	if unzip, err := gzip.NewReader(bytes.NewReader(p)); err == nil {
		if plain, err := io.ReadAll(io.LimitReader(unzip, maxUnpacked)); err == nil {
			add("decompressed with gzip", plain)
		}
	}
	if latin, ok := toLatin1(p); ok {
		add("in ISO 8859-1", latin)
	}
	add("read as ISO 8859-1 and written as UTF-8", fromLatin1(p))
	utf := utf16.Encode([]rune(string(p)))
	little, big := make([]byte, 0, 2*len(utf)), make([]byte, 0, 2*len(utf))
	for _, c := range utf {
		little, big = append(little, byte(c), byte(c>>8)), append(big, byte(c>>8), byte(c))
	}
	add("in UTF-16 (little-endian)", little)
	add("in UTF-16 (big-endian)", big)
	return all
}

func toLatin1(p []byte) ([]byte, bool) {
	out := make([]byte, 0, len(p))
	for _, r := range string(p) {
		if r > 255 {
			return nil, false
		}
		out = append(out, byte(r))
	}
	return out, true
}

func fromLatin1(p []byte) []byte {
	out := make([]byte, 0, len(p))
	for _, b := range p {
		out = utf8.AppendRune(out, rune(b))
	}
	return out
}

// node is a JSON value with the order of its names and the texts of its scalars.
type node struct {
	kind     jsontext.Kind // '{', '[' or that of a scalar
	raw      []byte        // of a scalar
	names    [][]byte      // raw texts of strings, parallel to children
	children []node
}

// parseJSON parses one JSON value.
func parseJSON(text []byte) (node, bool) {
	text = bytes.TrimPrefix(text, []byte(bom))
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	n, err := readNode(d)
	if err != nil {
		return n, false
	}
	_, err = d.ReadToken()
	return n, err == io.EOF
}

func readNode(d *jsontext.Decoder) (n node, err error) {
	n.kind = d.PeekKind()
	if n.kind != '{' && n.kind != '[' {
		raw, err := d.ReadValue()
		n.raw = bytes.Clone(raw)
		return n, err
	}
	if _, err = d.ReadToken(); err != nil {
		return n, err
	}
	for d.PeekKind() != '}' && d.PeekKind() != ']' {
		if n.kind == '{' {
			name, err := d.ReadValue()
			if err != nil {
				return n, err
			}
			n.names = append(n.names, bytes.Clone(name))
		}
		child, err := readNode(d)
		if err != nil {
			return n, err
		}
		n.children = append(n.children, child)
	}
	_, err = d.ReadToken()
	return n, err
}

// style is how a program writes JSON.
type style struct {
	layout  layout
	sorted  bool
	text    string // how strings are written: one of the texts
	numbers string // how numbers are written: one of the numbers
}

type layout struct{ name, comma, colon, indent, line string }

var jsonLayouts = []layout{
	{"compact", ",", ":", "", ""},
	{"a space after commas and colons", ", ", ": ", "", ""},
	{"indented by two spaces", ",", ": ", "  ", "\n"},
	{"indented by four spaces", ",", ": ", "    ", "\n"},
	{"indented by tabs", ",", ": ", "\t", "\n"},
	{"indented by two spaces, with CR LF", ",", ": ", "  ", "\r\n"},
	{"indented by two spaces, with a space before colons", ",", " : ", "  ", "\n"},
}

// How strings are written.
const (
	textAsIs    = ""
	textMinimal = "characters unescaped"
	textHTML    = "&, < and > escaped"
	textASCII   = "ASCII only"
	textSlash   = "slashes escaped"
)

// How numbers are written.
const (
	numbersAsIs     = ""
	numbersShortest = "numbers without trailing zeros"
	numbersFloat    = "numbers as floating-point values"
)

func styles() (all []style) {
	for _, l := range jsonLayouts {
		for _, sorted := range []bool{false, true} {
			for _, text := range []string{textAsIs, textMinimal, textHTML, textASCII, textSlash} {
				for _, numbers := range []string{numbersAsIs, numbersShortest, numbersFloat} {
					all = append(all, style{l, sorted, text, numbers})
				}
			}
		}
	}
	return all
}

func (s style) name() string {
	names := []string{s.layout.name}
	if s.sorted {
		names = append(names, "names sorted")
	}
	for _, name := range []string{s.text, s.numbers} {
		if name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func (s style) write(n node) []byte { return s.append(nil, n, 0) }

func (s style) append(out []byte, n node, depth int) []byte {
	switch n.kind {
	case '"':
		return s.appendText(out, n.raw)
	case '0':
		return s.appendNumber(out, n.raw)
	case '{', '[':
	default:
		return append(out, n.raw...)
	}
	order := make([]int, len(n.children))
	for i := range order {
		order[i] = i
	}
	if s.sorted && n.kind == '{' {
		slices.SortStableFunc(order, func(a, b int) int { return bytes.Compare(n.names[a], n.names[b]) })
	}
	out = append(out, byte(n.kind))
	for i, child := range order {
		if i > 0 {
			out = append(out, s.layout.comma...)
		}
		out = s.appendLine(out, depth+1)
		if n.kind == '{' {
			out = append(s.appendText(out, n.names[child]), s.layout.colon...)
		}
		out = s.append(out, n.children[child], depth+1)
	}
	if len(order) > 0 {
		out = s.appendLine(out, depth)
	}
	return append(out, byte(n.kind)+2) // } follows { by two, and ] follows [
}

func (s style) appendLine(out []byte, depth int) []byte {
	if s.layout.line == "" {
		return out
	}
	return append(append(out, s.layout.line...), strings.Repeat(s.layout.indent, depth)...)
}

func (s style) appendText(out, raw []byte) []byte {
	if s.text == textAsIs {
		return append(out, raw...)
	}
	plain, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return append(out, raw...)
	}
	quoted, err := jsontext.AppendQuote(nil, plain)
	if err != nil {
		return append(out, raw...)
	}
	for _, r := range string(quoted) {
		switch {
		case s.text == textSlash && r == '/':
			out = append(out, `\/`...)
		case s.text == textHTML && (r == '&' || r == '<' || r == '>' || r == '\u2028' || r == '\u2029'):
			out = fmt.Appendf(out, `\u%04x`, r)
		case s.text == textASCII && r > 127:
			for _, c := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, c)
			}
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

func (s style) appendNumber(out, raw []byte) []byte {
	f, err := strconv.ParseFloat(string(raw), 64)
	if s.numbers == numbersAsIs || err != nil {
		return append(out, raw...)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if s.numbers == numbersFloat && bytes.ContainsAny(raw, ".eE") && !strings.Contains(text, ".") {
		text += ".0"
	}
	return append(out, text...)
}
