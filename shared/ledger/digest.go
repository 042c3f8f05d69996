package ledger

import (
	"crypto/sha256"
	"encoding/json/jsontext"
	"slices"
	"strings"

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
	text, err := jsontext.AppendFormat(nil, raw)
	if err != nil {
		return sha256.Sum256(raw)
	}
	parts, hash := partsOf(text), sha256.New()
	for n, end := 0, len(parts)-1; n != end; n = parts[n].next {
		hash.Write(text[parts[n].start:parts[n+1].start])
	}
	hash.Sum(d[:0])
	return d
}

// part is a part of a text. It ends where the next part in the text starts. The part at next follows it in the
// canonical form.
type part struct{ start, next int }

// member is a member of an object, from its name to the comma or brace after its value.
type member struct {
	name        string // unquoted, in the order of utf16Order
	before      int    // the last part before the object's first member
	first, last int    // of its parts in the canonical form
}

// utf16Order changes a text so that its bytes have the order of its UTF-16 code units (RFC 8785, section 3.2.3). In
// UTF-8, U+E000 to U+FFFF begin with EE and EF, and what takes two units begins with F0 to F4.
var utf16Order = strings.NewReplacer("\xEE", "\xFE", "\xEF", "\xFF")

// partsOf returns the parts of a text that is canonical except for the order of members and the eventId. The canonical
// form begins with the first part and ends before the last one, which is empty. For this, partsOf changes the case of
// the eventId, and the comma or brace after members.
func partsOf(text []byte) []part {
	parts := make([]part, 0, 64)
	begin := func(at int) { parts = append(parts, part{at, len(parts) + 1}) }
	begin(0)
	members := make([]member, 0, 32) // of the objects that are open
	var name []byte
	for at := 0; at < len(text); at++ {
		switch start := at; {
		case text[at] == '"':
			for at++; text[at] != '"'; at++ {
				if text[at] == '\\' {
					at++
				}
			}
			value, last := text[start+1:at], len(members)-1
			switch {
			case at+1 < len(text) && text[at+1] == ':':
				name, _ = jsontext.AppendUnquote(name[:0], text[start:at+1])
				m := member{name: utf16Order.Replace(string(name)), before: len(parts) - 1, first: len(parts)}
				if text[start-1] == ',' {
					m.before = members[last].before
				}
				members = append(members, m)
				begin(start)
			case text[0] == '{' && members[last].before == 0 && text[start-1] == ':' &&
				members[last].name == "eventId" && payment.IsUUID(string(value)):
				copy(value, Key(string(value)))
			}
		case text[at] == '}' && text[at-1] != '{':
			first := len(members) - 1
			for first > 0 && members[first-1].before == members[first].before {
				first--
			}
			begin(at + 1)
			sortMembers(text, parts, members[first:])
			members = members[:first]
		}
	}
	begin(len(text))
	return parts
}

// sortMembers sorts the members of an object that ends where the last of parts starts.
func sortMembers(text []byte, parts []part, members []member) {
	n, end := members[0].before, len(parts)-1
	for i := range members[1:] {
		members[i].last = members[i+1].first - 1
	}
	members[len(members)-1].last = end - 1
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	for _, m := range members {
		parts[n].next, n = m.first, m.last
		text[parts[n+1].start-1] = ','
	}
	parts[n].next = end
	text[parts[n+1].start-1] = '}'
}
