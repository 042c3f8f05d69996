package explain

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json/jsontext"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"payhook.example/shared/signature"
)

// The limits of what is collected from a request. Lambda and API Gateway accept less
// than 64 KiB of headers.
const (
	maxText       = 16 << 10
	maxValues     = 4000
	maxSignatures = 16
	maxTimestamps = 24
	maxDepth      = 16
)

// value is a text of a request.
type value struct {
	place   string // as in header X-Key, query parameter key, JSON field a.b
	name    string // of the header, parameter or field; part of the ranking
	carrier string // "header:NAME" or "query:NAME"; "" if no setting can name the place
	text    string
	rank    int // less is more likely
}

// The ranks of places.
const (
	inHeader = iota
	inQuery
	inPath
	inJSON
	inEvents // of the payload: its UUIDs and timestamps are those of payments
)

// collect returns all texts of the request, the most likely places first.
func (e *explainer) collect() (all []value) {
	r := e.request
	add := func(v value) {
		if v.text != "" && len(v.text) <= maxText && len(all) < maxValues {
			all = append(all, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		shown := textproto.CanonicalMIMEHeaderKey(name)
		v := value{"header " + shown, name, "header:" + shown, r.Headers[name], inHeader}
		if _, err := signature.ParseCarrier(v.carrier); err != nil || strings.Contains(v.text, ",") {
			v.carrier = "" // a comma separates the values of two headers
		}
		add(v)
		for _, p := range parts(v) {
			add(p)
		}
	}
	query, err := url.ParseQuery(r.RawQuery)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		for _, text := range query[name] {
			v := value{"query parameter " + name, name, "query:" + name, text, inQuery}
			if _, bad := signature.ParseCarrier(v.carrier); bad != nil || err != nil || len(query[name]) > 1 {
				v.carrier = ""
			}
			add(v)
			for _, p := range parts(v) {
				add(p)
			}
		}
	}
	for segment := range strings.SplitSeq(r.Path, "/") {
		add(value{"path", "path", "", segment, inPath})
	}
	for _, v := range jsonValues(r.Payload) {
		add(v)
	}
	return all
}

// parts returns the parts of a value that has several, as in t=1700000000,v1=abc or
// Signature keyId="abc", signature="def".
func parts(v value) (found []value) {
	for _, piece := range strings.FieldsFunc(v.text, func(r rune) bool { return strings.ContainsRune(",; \t", r) }) {
		name, text, ok := strings.Cut(piece, "=")
		if !ok || strings.Trim(text, "=") == "" || len(name) > 40 {
			name, text = "", piece
		}
		if text = strings.Trim(text, `"'`); text == v.text {
			continue
		}
		p := value{place: "part of " + v.place, name: v.name + " " + name, text: text, rank: v.rank}
		if name != "" {
			p.place = fmt.Sprintf("part %s of %s", name, v.place)
		}
		found = append(found, p)
	}
	// A JSON Web Signature has its signature in the third part, and the key id in the
	// JSON of its first part (RFC 7515, section 7.1).
	if pieces := strings.Split(v.text, "."); len(pieces) == 3 && len(pieces[2]) > 100 {
		found = append(found, value{place: "third part of " + v.place, name: v.name, text: pieces[2], rank: v.rank})
		if header, err := base64.RawURLEncoding.DecodeString(pieces[0]); err == nil {
			for _, f := range jsonValues(header) {
				f.place = f.place + " of the first part of " + v.place
				f.rank = v.rank
				found = append(found, f)
			}
		}
	}
	return found
}

// jsonValues returns the strings and numbers of a JSON text with the paths of their
// names.
func jsonValues(text []byte) (found []value) {
	d := jsontext.NewDecoder(strings.NewReader(string(text)), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	for len(found) < maxValues {
		token, err := d.ReadToken()
		if err != nil {
			return found
		}
		if d.StackDepth() > maxDepth {
			return found
		}
		kind := token.Kind()
		if kind != '"' && kind != '0' {
			continue
		}
		if holder, n := d.StackIndex(d.StackDepth()); holder == '{' && n%2 == 1 {
			continue // a name
		}
		path := strings.Join(slices.Collect(d.StackPointer().Tokens()), ".")
		rank := inJSON
		if path == "events" || strings.HasPrefix(path, "events.") {
			rank = inEvents
		}
		last := path[strings.LastIndex(path, ".")+1:]
		found = append(found, value{"JSON field " + path, last, "", token.String(), rank})
	}
	return found
}

// The encodings of a signature.
const (
	base64URL       = "base64url"
	base64Standard  = "standard base64"
	base64Spaced    = "base64 with white space"
	base64NonStrict = "base64url that is not canonical"
	hexadecimal     = "hexadecimal"
)

// signatureCandidate is a value that can be a signature.
type signatureCandidate struct {
	value
	encoding string
	bytes    []byte
	opened   []openedBy
}

// minSignature and maxSignature are the sizes of what is looked at: smaller and larger
// keys than those that are allowed, so that the report can name the reason.
const minSignature, maxSignature = 1024 / 8, 8192 / 8

func signatureCandidates(all []value, configured string) (found []signatureCandidate) {
	for _, v := range all {
		if v.rank == inEvents {
			continue
		}
		if c, ok := signatureIn(v); ok {
			found = append(found, c)
		}
	}
	rank := func(c signatureCandidate) int {
		switch {
		case strings.EqualFold(c.carrier, "header:"+configured):
			return 0
		case strings.Contains(strings.ToLower(c.name), "sig"):
			return 1 + c.rank
		}
		return 10 + c.rank
	}
	slices.SortStableFunc(found, func(a, b signatureCandidate) int { return rank(a) - rank(b) })
	return found[:min(len(found), maxSignatures)]
}

// signatureIn decodes a value. Of the encodings that fit, the one that Payhook accepts
// comes first.
func signatureIn(v value) (signatureCandidate, bool) {
	c := signatureCandidate{value: v}
	// First, because hexadecimal digits are base64url as well.
	if b, err := hex.DecodeString(v.text); err == nil && fits(b) {
		c.encoding, c.bytes = hexadecimal, b
		return c, true
	}
	if signature.CheckForm(v.text, minSignature, maxSignature) == nil {
		c.encoding = base64URL
		c.bytes, _ = base64.RawURLEncoding.DecodeString(strings.TrimRight(v.text, "="))
		return c, true
	}
	text, encoding := v.text, ""
	if unescaped, err := url.PathUnescape(text); err == nil && unescaped != text {
		text, encoding = unescaped, " with percent-encoding"
	}
	// A plus sign in a query parameter is read as a space.
	if v.rank == inQuery && strings.Contains(text, " ") {
		text = strings.ReplaceAll(text, " ", "+")
	}
	if packed := strings.Join(strings.Fields(strings.Trim(text, `"'`)), ""); packed != text {
		text, encoding = packed, encoding+" with white space or quotation marks"
	}
	// A prefix names the algorithm, as in sha256=abc.
	if name, rest, ok := strings.Cut(text, "="); ok && len(name) <= 20 && len(rest) > 100 {
		text, encoding = rest, encoding+" after a prefix"
	}
	if b, err := hex.DecodeString(text); err == nil && fits(b) {
		c.encoding, c.bytes = hexadecimal+encoding, b
		return c, true
	}
	bare := strings.TrimRight(text, "=")
	for _, try := range []struct {
		name string
		as   *base64.Encoding
	}{{base64URL, base64.RawURLEncoding}, {base64Standard, base64.RawStdEncoding}} {
		if b, err := try.as.DecodeString(bare); err == nil && fits(b) {
			c.encoding, c.bytes = try.name+encoding, b
			if c.encoding == base64URL {
				c.encoding = base64NonStrict
			}
			return c, true
		}
	}
	return c, false
}

func fits(b []byte) bool { return minSignature <= len(b) && len(b) <= maxSignature }

// timestampCandidate is a value that can be the signed timestamp.
type timestampCandidate struct {
	value
	format string
	at     time.Time
}

var timeName = regexp.MustCompile(`(?i)time|stamp|date|^t$|\bt$|\bts\b|created|iat`)

func timestampCandidates(all []value, configured string) (found []timestampCandidate) {
	for _, v := range all {
		if at, format, ok := timeOf(v.text); ok {
			found = append(found, timestampCandidate{v, format, at})
		} else if sameCarrier(v.carrier, configured) {
			found = append(found, timestampCandidate{v, "a format that is not known", time.Time{}})
		}
	}
	rank := func(c timestampCandidate) int {
		switch {
		case sameCarrier(c.carrier, configured):
			return 0
		case timeName.MatchString(c.name):
			return 1 + c.rank
		}
		return 10 + c.rank
	}
	slices.SortStableFunc(found, func(a, b timestampCandidate) int { return rank(a) - rank(b) })
	return found[:min(len(found), maxTimestamps)]
}

// layouts are the formats of time that Payhook does not accept.
var layouts = []struct{ name, layout string }{
	{"RFC 1123", time.RFC1123}, {"RFC 1123", time.RFC1123Z}, {"RFC 850", time.RFC850}, {"ANSI C", time.ANSIC},
	{"ISO 8601 basic", "20060102T150405Z0700"}, {"ISO 8601 with an offset without " +
		"colon", "2006-01-02T15:04:05.999999999Z0700"},
	{"ISO 8601 without an offset", "2006-01-02T15:04:05.999999999"},
	{"a date and time with a space", "2006-01-02 15:04:05.999999999Z07:00"},
	{"a date and time with a space, without an offset", "2006-01-02 15:04:05.999999999"},
}

// timeOf parses a text in all formats that are known. Times before 2001 and after 2100
// are numbers of another kind.
func timeOf(text string) (at time.Time, format string, ok bool) {
	switch {
	case len(text) > 64:
		return at, "", false
	case strings.Trim(text, "0123456789") == "" && len(text) >= 16 && len(text) <= 19:
		n, err := strconv.ParseInt(text, 10, 64)
		if len(text) >= 18 {
			at, format = time.Unix(0, n), "Unix nanoseconds"
		} else {
			at, format = time.UnixMicro(n), "Unix microseconds"
		}
		ok = err == nil
	default:
		if at, ok = signature.TimeOf(text); ok {
			format = formatName(text)
		}
	}
	if seconds, fraction, cut := strings.Cut(text, "."); !ok && cut &&
		strings.Trim(seconds+fraction, "0123456789") == "" {
		if n, err := strconv.ParseInt(seconds, 10, 64); err == nil && len(seconds) <= 11 {
			at, format, ok = time.Unix(n, 0), "Unix seconds with a fraction", true
		}
	}
	for _, l := range layouts {
		if ok {
			break
		}
		parsed, err := time.Parse(l.layout, text)
		at, format, ok = parsed, l.name, err == nil
	}
	return at, format, ok && at.Year() >= 2001 && at.Year() <= 2100
}

func formatName(text string) string {
	switch {
	case strings.Trim(text, "0123456789") != "":
		return "RFC 3339"
	case len(text) <= 11:
		return "Unix seconds"
	}
	return "Unix milliseconds"
}

// rewritten returns the other texts of a time that a service can have signed.
func (c timestampCandidate) rewritten() (texts []string) {
	if c.at.IsZero() {
		return nil
	}
	utc := c.at.UTC()
	for _, text := range []string{
		signature.FormatRFC3339.Text(c.at), utc.Format(time.RFC3339), utc.Format(time.RFC3339Nano),
		utc.Format("2006-01-02T15:04:05.000000Z"), utc.Format("2006-01-02T15:04:05.000+00:00"),
		utc.Format("2006-01-02T15:04:05+00:00"), strings.ToLower(c.text), strings.ToUpper(c.text),
		signature.FormatSeconds.Text(c.at), signature.FormatMilliseconds.Text(c.at),
		strconv.FormatInt(c.at.UnixMicro(), 10), utc.Format(http.TimeFormat), utc.Format("20060102T150405Z"),
	} {
		if text != c.text && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}

// keyCandidate is a value that can be the key id.
type keyCandidate struct {
	value
	id string // as a UUID
}

// fromOptions is the place of the key ids that a caller gave.
const fromOptions = "command line"

var (
	keyName = regexp.MustCompile(`(?i)key|kid`)
	uuids   = regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|` +
		`\b[0-9a-f]{32}\b`)
)

// keyCandidates returns the UUIDs, and texts of 32 hexadecimal digits that are UUIDs
// without hyphens.
func keyCandidates(all []value, configured string, given []string) (found []keyCandidate) {
	rank := func(c keyCandidate) int {
		switch {
		case c.place == fromOptions || sameCarrier(c.carrier, configured):
			return 0
		case keyName.MatchString(c.name):
			return 1 + c.rank
		}
		return 10 + c.rank
	}
	if id, static := signature.StaticKeyID(configured); static {
		found = append(found, keyCandidate{value{place: "setting keyIdCarrier", carrier: configured, text: id}, id})
	}
	for _, id := range given {
		found = append(found, keyCandidate{value{place: fromOptions, text: id}, id})
	}
	for _, v := range all {
		for _, text := range uuids.FindAllString(v.text, 4) {
			c := keyCandidate{v, text}
			if text != v.text {
				c.place, c.carrier, c.text = "part of "+v.place, "", text
			}
			if len(text) == 32 {
				c.id = text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
				c.carrier = ""
			}
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b keyCandidate) int { return rank(a) - rank(b) })
	return found[:min(len(found), maxValues)]
}
