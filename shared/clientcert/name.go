package clientcert

import (
	"cmp"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Name is a distinguished name. Two names are equal (==) if they have the same
// attributes in the same or in the opposite order, because RFC 4514 and openssl write
// opposite orders. The types of the strings in ASN.1 do not matter; upper and lower case
// do. Its text is close to RFC 4514, and [ParseName] accepts it.
type Name string

// attributeTypes are the object identifiers of attributes by the names that RFC 4514 and
// openssl write, in lower case. For other types, openssl writes the object identifier.
var attributeTypes = map[string]string{
	"cn": "2.5.4.3", "sn": "2.5.4.4", "serialnumber": "2.5.4.5", "c": "2.5.4.6", "l": "2.5.4.7", "st": "2.5.4.8",
	"street": "2.5.4.9", "o": "2.5.4.10", "ou": "2.5.4.11", "title": "2.5.4.12", "description": "2.5.4.13",
	"businesscategory": "2.5.4.15", "postalcode": "2.5.4.17", "name": "2.5.4.41", "gn": "2.5.4.42",
	"initials": "2.5.4.43", "generationqualifier": "2.5.4.44", "dnqualifier": "2.5.4.46", "pseudonym": "2.5.4.65",
	"organizationidentifier": "2.5.4.97", "uid": "0.9.2342.19200300.100.1.1", "dc": "0.9.2342.19200300.100.1.25",
	"emailaddress": "1.2.840.113549.1.9.1", "jurisdictionl": "1.3.6.1.4.1.311.60.2.1.1",
	"jurisdictionst": "1.3.6.1.4.1.311.60.2.1.2", "jurisdictionc": "1.3.6.1.4.1.311.60.2.1.3",
}

// SubjectName returns the subject of a certificate.
func SubjectName(c *x509.Certificate) Name { return nameOf(sequence(c.RawSubject)) }

// IssuerName returns the issuer of a certificate.
func IssuerName(c *x509.Certificate) Name { return nameOf(sequence(c.RawIssuer)) }

// nameOf returns a name. It changes the order in names.
func nameOf(names pkix.RDNSequence) Name {
	for _, rdn := range names {
		// An RDN is a set.
		slices.SortFunc(rdn, func(a, b pkix.AttributeTypeAndValue) int {
			return cmp.Or(slices.Compare(a.Type, b.Type), cmp.Compare(fmt.Sprint(a.Value), fmt.Sprint(b.Value)))
		})
	}
	text := names.String()
	slices.Reverse(names)
	opposite := names.String()
	// Of the two orders, the one that begins with the common name is that of RFC 4514.
	first, second := strings.HasPrefix(text, "CN="), strings.HasPrefix(opposite, "CN=")
	if first && !second || first == second && text < opposite {
		return Name(text)
	}
	return Name(opposite)
}

// ParseName parses a name in one of these forms, in any order of its attributes:
//
//   - RFC 4514: CN=X,O=Y
//   - what openssl writes by default, with or without spaces: C = DE, O = "Y, Z", CN = X
//   - what openssl writes with -nameopt compat: /C=DE/O=Y/CN=X
//
// The types are short names, in any case, or object identifiers.
func ParseName(text string) (Name, error) {
	for _, prefix := range []string{"issuer=", "subject="} { // openssl x509 writes it
		text = strings.TrimPrefix(strings.TrimSpace(text), prefix)
	}
	p := nameParser{rest: strings.TrimLeft(text, " "), separator: ','}
	if strings.HasPrefix(p.rest, "/") {
		p.rest, p.separator = p.rest[1:], '/'
	}
	names := pkix.RDNSequence{nil}
	for {
		attribute, end, err := p.attribute()
		if err != nil {
			return "", err
		}
		names[len(names)-1] = append(names[len(names)-1], attribute)
		switch end {
		case 0:
			return nameOf(names), nil
		case p.separator:
			names = append(names, nil)
		}
	}
}

// nameParser reads a name from left to right.
type nameParser struct {
	rest      string
	separator byte // of RDNs: a comma or a slash; the attributes of one are separated by a plus sign
}

// attribute reads TYPE=VALUE and the separator after it, which is 0 at the end.
func (p *nameParser) attribute() (a pkix.AttributeTypeAndValue, end byte, err error) {
	kind, rest, ok := strings.Cut(p.rest, "=")
	kind = strings.TrimSpace(kind)
	if a.Type = attributeType(kind); !ok || a.Type == nil {
		return a, 0, fmt.Errorf(
			"must be a name such as CN=Operator CA,O=Payments: %q is not the type of an attribute; "+
				"escape a separator in a value with a backslash",
			kind,
		)
	}
	p.rest = rest
	var value []byte
	if p.separator == '/' {
		value, end, err = p.until("/+")
	} else {
		p.rest = strings.TrimLeft(p.rest, " ")
		if strings.HasPrefix(p.rest, "#") {
			if value, end, err = p.until(",+"); err == nil {
				a.Value, err = encoded(string(value[1:]))
			}
			return a, end, err
		}
		value, end, err = p.value()
	}
	a.Value = string(value)
	if err == nil && !utf8.Valid(value) {
		err = fmt.Errorf("the value of %s is not UTF-8", kind)
	}
	return a, end, err
}

// value reads a value that can be quoted.
func (p *nameParser) value() (value []byte, end byte, err error) {
	if !strings.HasPrefix(p.rest, `"`) {
		return p.until(",+")
	}
	p.rest = p.rest[1:]
	if value, end, err = p.until(`"`); err == nil && end == 0 {
		err = errors.New("a quotation mark is missing")
	}
	if err != nil {
		return nil, 0, err
	}
	more, end, err := p.until(",+")
	if err == nil && len(more) > 0 {
		err = fmt.Errorf("there is %q after a quotation mark", more)
	}
	return value, end, err
}

// until reads up to one of the characters of ends and resolves escapes. It omits spaces at
// the end that are not escaped, if the value is neither quoted nor between slashes.
func (p *nameParser) until(ends string) (value []byte, end byte, err error) {
	kept := 0 // the length without spaces at the end
	for p.rest != "" {
		c := p.rest[0]
		p.rest = p.rest[1:]
		if strings.IndexByte(ends, c) >= 0 {
			end = c
			break
		}
		keep := c != ' ' || ends != ",+"
		if c == '\\' {
			octet, length := unescape(p.rest, p.separator)
			if length > 0 {
				c, p.rest, keep = octet, p.rest[length:], true
			} else if p.separator == ',' {
				return nil, 0, errors.New("a backslash must be before a special character or two hexadecimal digits")
			}
		}
		if value = append(value, c); keep {
			kept = len(value)
		}
	}
	return value[:kept], end, nil
}

// unescape returns what the text after a backslash stands for and its length, which is 0 if
// it is no escape. Between commas, escapes are those of RFC 4514, section 3. Between
// slashes, openssl escapes separators (since version 3), and bytes that are not printable
// ASCII, as in \xC3.
func unescape(text string, separator byte) (octet byte, length int) {
	special, prefix := ` "#+,;<=>\`, ""
	if separator == '/' {
		special, prefix = "/+", "x"
	}
	if text != "" && strings.IndexByte(special, text[0]) >= 0 {
		return text[0], 1
	}
	digits, ok := strings.CutPrefix(text, prefix)
	if !ok || len(digits) < 2 {
		return 0, 0
	}
	n, err := strconv.ParseUint(digits[:2], 16, 8)
	if err != nil {
		return 0, 0
	}
	return byte(n), len(prefix) + 2
}

// encoded returns a text that is written as the hexadecimal digits of its encoding.
func encoded(digits string) (text string, err error) {
	der, err := hex.DecodeString(digits)
	if err == nil {
		var value any
		rest, err := asn1.Unmarshal(der, &value)
		if text, ok := value.(string); ok && err == nil && len(rest) == 0 {
			return text, nil
		}
	}
	return "", errors.New("the digits after # are not the encoding of a text")
}

// attributeType returns the object identifier of a type, or nil if it is unknown.
func attributeType(name string) (id asn1.ObjectIdentifier) {
	if known, ok := attributeTypes[strings.ToLower(name)]; ok {
		name = known
	}
	for part := range strings.SplitSeq(name, ".") {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return nil
		}
		id = append(id, int(n))
	}
	return id
}
