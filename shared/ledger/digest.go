package ledger

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json/jsontext"
	"slices"

	"payhook.example/shared/payment"
)

// Digest identifies an event's content.
type Digest [sha256.Size]byte

// DigestOf returns the SHA-256 of an event's canonical form, so that the same content in another spelling is the same
// event. The form is that of RFC 8785 (no white space, members sorted, strings in their shortest form), except that
// numbers stay as they were sent: 1.0 is not 1.00. The eventId is in lower case, as for [Key]. raw must be valid JSON
// without duplicate names; the digest of another text is its SHA-256. The time is linear in the length of raw, whatever
// its depth, except that names are sorted.
func DigestOf(raw []byte) (d Digest) {
	text, err := jsontext.AppendFormat(nil, raw, jsontext.AllowDuplicateNames(true)) // partsOf finds them
	if err != nil {
		return sha256.Sum256(raw)
	}
	parts := partsOf(text)
	if parts == nil {
		return sha256.Sum256(raw)
	}
	hash := sha256.New()
	for n, end := 0, len(parts)-1; n != end; n = parts[n].next {
		from := parts[n].start
		for n+1 != end && parts[n].next == n+1 { // they follow one another in text as well
			n++
		}
		hash.Write(text[from:parts[n+1].start])
	}
	hash.Sum(d[:0])
	return d
}

// part is a part of a text. It ends where the next part in the text starts. The part at next follows it in the
// canonical form.
type part struct{ start, next int }

// member is a member of an object, from its name to the comma or brace after its value.
type member struct {
	name        []byte // unquoted
	first, last int    // of its parts in the canonical form
}

// partsOf returns the parts of a text that is canonical except for the order of members and the eventId. The canonical
// form begins with the first part and ends before the last one, which is empty. For this, partsOf changes the case of
// the eventId, and the comma or brace after members. It returns nil if an object has a name twice.
func partsOf(text []byte) []part {
	parts := make([]part, 0, 64)
	begin := func(at int) { parts = append(parts, part{at, len(parts) + 1}) }
	begin(0)
	members := make([]member, 0, 32) // of the objects that are open
	open := make([]int, 0, 16)       // where in members those of each open object begin
	for at := 0; at < len(text); at++ {
		switch start := at; {
		case text[at] == '"':
			for at++; text[at] != '"'; at++ {
				if text[at] == '\\' {
					at++
				}
			}
			if at+1 == len(text) || text[at+1] != ':' { // not a name
				value := text[start+1 : at]
				if len(open) == 1 && text[0] == '{' && text[start-1] == ':' && payment.IsUUID(string(value)) &&
					string(members[len(members)-1].name) == "eventId" {
					copy(value, Key(string(value)))
				}
				continue
			}
			if text[start-1] == '{' {
				open = append(open, len(members))
			} else {
				members[len(members)-1].last = len(parts) - 1
			}
			name := text[start+1 : at]
			if bytes.IndexByte(name, '\\') >= 0 {
				name, _ = jsontext.AppendUnquote(nil, text[start:at+1])
			}
			members = append(members, member{name: name, first: len(parts)})
			begin(start)
		case text[at] == '}' && text[at-1] != '{':
			first := open[len(open)-1]
			members[len(members)-1].last = len(parts) - 1
			begin(at + 1)
			if !sortMembers(text, parts, members[first:]) {
				return nil
			}
			members, open = members[:first], open[:len(open)-1]
		}
	}
	begin(len(text))
	return parts
}

// sortMembers sorts the members of an object that ends where the last of parts starts, and reports whether their names
// differ.
func sortMembers(text []byte, parts []part, members []member) bool {
	n, end := members[0].first-1, len(parts)-1
	slices.SortFunc(members, func(a, b member) int { return compareUTF16(a.name, b.name) })
	for i, m := range members {
		if i > 0 && bytes.Equal(m.name, members[i-1].name) {
			return false
		}
		parts[n].next, n = m.first, m.last
		text[parts[n+1].start-1] = ','
	}
	parts[n].next = end
	text[parts[n+1].start-1] = '}'
	return true
}

// compareUTF16 compares texts by their UTF-16 code units (RFC 8785, section 3.2.3). That is the order of their bytes in
// UTF-8, except that what takes two units is before U+E000 to U+FFFF, which begin with the bytes EE and EF.
func compareUTF16(a, b []byte) int {
	n, shorter := 0, min(len(a), len(b))
	for n < shorter && a[n] == b[n] {
		n++
	}
	if n == shorter {
		return cmp.Compare(len(a), len(b))
	}
	order := func(c byte) byte {
		if c == 0xEE || c == 0xEF {
			return c | 0xF0
		}
		return c
	}
	return cmp.Compare(order(a[n]), order(b[n]))
}
