package clientcert

import (
	"bytes"
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

// attributeTypes are the object identifiers of attributes, each with the names that
// openssl, RFC 4514, Go and Windows use, in lower case. openssl writes other types as
// object identifiers.
var attributeTypes = [...]struct{ id, names string }{
	{"2.5.4.3", "cn commonname"}, {"2.5.4.4", "sn surname"}, {"2.5.4.5", "serialnumber"},
	{"2.5.4.6", "c countryname"}, {"2.5.4.7", "l localityname"}, {"2.5.4.8", "st s stateorprovincename"},
	{"2.5.4.9", "street streetaddress"}, {"2.5.4.10", "o organizationname"},
	{"2.5.4.11", "ou organizationalunitname"}, {"2.5.4.12", "title"}, {"2.5.4.13", "description"},
	{"2.5.4.15", "businesscategory"}, {"2.5.4.17", "postalcode"}, {"2.5.4.41", "name"},
	{"2.5.4.42", "gn givenname"}, {"2.5.4.43", "initials"}, {"2.5.4.44", "generationqualifier"},
	{"2.5.4.46", "dnqualifier"}, {"2.5.4.65", "pseudonym"}, {"2.5.4.97", "organizationidentifier"},
	{"0.9.2342.19200300.100.1.1", "uid userid"}, {"0.9.2342.19200300.100.1.25", "dc domaincomponent"},
	{"1.2.840.113549.1.9.1", "emailaddress e"},
	{"1.3.6.1.4.1.311.60.2.1.1", "jurisdictionl jurisdictionlocalityname"},
	{"1.3.6.1.4.1.311.60.2.1.2", "jurisdictionst jurisdictionstateorprovincename"},
	{"1.3.6.1.4.1.311.60.2.1.3", "jurisdictionc jurisdictioncountryname"},
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
//   - RFC 4514, and what openssl writes with escaped or quoted values, also with spaces:
//     CN=X,O=Y or C = DE, O = "Y, Z", CN = X
//   - what openssl writes with -nameopt compat: /C=DE/O=Y/CN=X
//
// The types are short names, long names or object identifiers, in any case.
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
		return a, 0, fmt.Errorf("must be a name such as CN=Operator CA,O=Payments: %q is not the type of an attribute; "+
			"escape a separator in a value with a backslash", kind)
	}
	p.rest = rest
	if p.separator == '/' {
		a.Value, end, err = p.compatValue()
		return a, end, err
	}
	p.rest = strings.TrimLeft(p.rest, " ")
	var value []byte
	switch {
	case strings.HasPrefix(p.rest, `"`):
		p.rest = p.rest[1:]
		if value, end, err = p.until(`"`); err == nil && end == 0 {
			err = errors.New("a quotation mark is missing")
		}
		if err == nil {
			var more []byte
			if more, end, err = p.until(",+"); err == nil && len(bytes.TrimSpace(more)) > 0 {
				err = fmt.Errorf("there is %q after a quotation mark", more)
			}
		}
	case strings.HasPrefix(p.rest, "#"):
		if value, end, err = p.until(",+"); err == nil {
			a.Value, err = encoded(string(value[1:]))
		}
		return a, end, err
	default:
		value, end, err = p.until(",+")
	}
	a.Value = string(value)
	if err == nil && !utf8.Valid(value) {
		err = fmt.Errorf("the value of %s is not UTF-8", kind)
	}
	return a, end, err
}

// until reads up to one of the characters of ends and resolves escapes (RFC 4514,
// section 3). It omits spaces at the end that are not escaped, unless the value is
// quoted.
func (p *nameParser) until(ends string) (value []byte, end byte, err error) {
	kept := 0 // the length without spaces at the end
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case strings.IndexByte(ends, c) >= 0:
			p.rest = p.rest[i+1:]
			if c != '"' {
				value = value[:kept]
			}
			return value, c, nil
		case c != '\\':
			if value = append(value, c); c != ' ' {
				kept = len(value)
			}
		case i+1 < len(p.rest) && strings.IndexByte(` "#+,;<=>\`, p.rest[i+1]) >= 0:
			i++
			value = append(value, p.rest[i])
			kept = len(value)
		default:
			octet, err := strconv.ParseUint(p.rest[i+1:min(i+3, len(p.rest))], 16, 8)
			if err != nil || i+3 > len(p.rest) {
				return nil, 0, errors.New("a backslash must be before a special character or two hexadecimal digits")
			}
			value = append(value, byte(octet))
			kept = len(value)
			i += 2
		}
	}
	p.rest = ""
	return value[:kept], 0, nil
}

// compatValue reads a value that openssl wrote with -nameopt compat. It escapes only
// separators, with a backslash (since version 3), and bytes that are not printable
// ASCII, as in \xC3.
func (p *nameParser) compatValue() (value string, end byte, err error) {
	var b []byte
	for i := 0; i < len(p.rest); i++ {
		c := p.rest[i]
		switch {
		case c == '/' || c == '+':
			p.rest = p.rest[i+1:]
			return string(b), c, nil
		case c == '\\' && i+1 < len(p.rest) && (p.rest[i+1] == '/' || p.rest[i+1] == '+'):
			i++
			c = p.rest[i]
		case c == '\\' && i+4 <= len(p.rest) && p.rest[i+1] == 'x':
			if octet, err := strconv.ParseUint(p.rest[i+2:i+4], 16, 8); err == nil {
				c = byte(octet)
				i += 3
			}
		}
		b = append(b, c)
	}
	p.rest = ""
	return string(b), 0, nil
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
	name = strings.ToLower(name)
	for _, known := range attributeTypes {
		if slices.Contains(strings.Fields(known.names), name) {
			name = known.id
		}
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(name, "oid."), ".") {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return nil
		}
		id = append(id, int(n))
	}
	return id
}
