package settings

import (
	"errors"
	"fmt"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// format is a form of texts: what they match, and what an error calls it.
type format struct {
	matches func(text string) bool
	name    string
}

// The formats are declared before the settings, whose order is that of their initialization.
var (
	nonBlank       = format{func(v string) bool { return strings.TrimSpace(v) != "" }, "a text that is not blank"}
	headerName     = format{httpguts.ValidHeaderFieldName, "the name of a header"}
	source         = format{upTo(256, busCharacters+"/"), "at most 256 letters, digits, '.', '_', '/' and '-'"}
	busName        = format{upTo(maxBusName, busCharacters), "at most 256 letters, digits, '.', '_' and '-'"}
	domainName     = format{isDomainName, "a domain name in lower case"}
	email          = format{isPlainAddress, "an e-mail address"}
	hostedZoneID   = format{lazily(`^Z[A-Z0-9]{1,31}$`), "the id of a hosted zone"}
	certificateARN = format{lazily(`^arn:[a-z-]+:acm:[a-z0-9-]+:[0-9]{12}:certificate/[A-Za-z0-9-]+$`),
		"the ARN of a certificate in ACM"}
	// CloudFormation accepts 128 characters (AWS, "CreateStack" in the CloudFormation
	// API reference); the display name of a topic has at most 100.
	stackName = format{lazily(`^[A-Za-z][A-Za-z0-9-]{0,99}$`),
		"letters, digits and hyphens, starting with a letter, at most 100"}
	// AWS, "CreateTable" in the DynamoDB API reference.
	tableName = format{lazily(`^[A-Za-z0-9_.-]{3,255}$`), "the name of a DynamoDB table"}
	// AWS, "General purpose bucket naming rules" in the S3 User Guide.
	bucketName = format{lazily(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`), "the name of an S3 bucket"}
	// AWS, "Key identifiers (KeyId)" in the KMS Developer Guide. Aliases are not
	// accepted, because an alias can be moved to another key, and permissions name keys.
	keyARN = format{lazily(`^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+$`),
		"the ARNs of keys (not of aliases), joined by semicolons"}
	encryption = format{
		func(v string) bool { return v == EncryptionAWS || v == EncryptionCMK || keyARN.matches(v) },
		"aws, cmk, or the ARN of a key (not of an alias)"}
)

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"

	// The names of buses have no slash (AWS, "CreateEventBus" in the EventBridge API reference).
	busCharacters = lower + upper + digits + "._-"
	maxBusName    = 256
)

// parse stores a text, also if it does not match.
func (f format) parse(to *string, text string) error {
	*to = text
	if !f.matches(text) {
		return errors.New("must be " + f.name)
	}
	return nil
}

// lazily returns a function that matches a regular expression, which is compiled at its
// first use: a function starts without those that only the deployment uses.
func lazily(expression string) func(string) bool {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
	return func(text string) bool { return compiled().MatchString(text) }
}

// upTo returns a function that matches texts of 1 to n of these characters. A function
// that starts compiles no regular expression.
func upTo(n int, characters string) func(string) bool {
	return func(text string) bool { return 0 < len(text) && len(text) <= n && strings.Trim(text, characters) == "" }
}

// isDomainName matches the names of RFC 1123, section 2.1, in lower case, with at least one dot.
func isDomainName(text string) bool {
	labels := strings.Split(text, ".")
	return len(labels) > 1 && !slices.ContainsFunc(labels, func(label string) bool {
		return !upTo(63, lower+digits+"-")(label) || strings.Trim(label, "-") != label
	})
}

// isPlainAddress matches an e-mail address without name and brackets, in a domain with a dot.
func isPlainAddress(text string) bool {
	address, err := mail.ParseAddress(text)
	return err == nil && address.Address == text && strings.Contains(text[strings.LastIndex(text, "@"):], ".")
}

// as stores what parse returns.
func as[T any](to *T, text string, parse func(string) (T, error)) (err error) {
	*to, err = parse(text)
	return err
}

func choose(to *string, text string, options ...string) error {
	one := format{func(v string) bool { return slices.Contains(options, v) }, strings.Join(options, " or ")}
	return one.parse(to, text)
}

// either stores whether the text is yes and not no.
func either(to *bool, text, no, yes string) error {
	*to = text == yes
	return choose(new(string), text, no, yes)
}

func whole(to *int, text string, least, most int) (err error) {
	if *to, err = strconv.Atoi(text); err != nil || *to < least || *to > most {
		return fmt.Errorf("must be a whole number from %d to %d", least, most)
	}
	return nil
}

// logDays reads a retention of CloudWatch Logs (AWS, PutRetentionPolicy).
func logDays(to *int, text string) (err error) {
	allowed := []int{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557,
		2922, 3288, 3653}
	if *to, err = strconv.Atoi(text); err != nil || !slices.Contains(allowed, *to) {
		return fmt.Errorf("must be one of %s", strings.Trim(fmt.Sprint(allowed), "[]"))
	}
	return nil
}

// minRetention and maxRetention are in days. A consumer's queue retains a reference
// for up to 14 days (AWS, "Amazon SQS message quotas"), and the event must exist for
// longer.
const minRetention, maxRetention = 15, 36500

// wholeDays reads a duration of at least least and at most maxRetention days.
func wholeDays(to *int, text string, least int) error {
	d, err := ParseDuration(text)
	if *to = int(d / day); err != nil || d%day != 0 || *to < least || *to > maxRetention {
		return fmt.Errorf("must be whole days from %dd to %dd", least, maxRetention)
	}
	return nil
}

func span(to *time.Duration, text string, least, most time.Duration) (err error) {
	if *to, err = ParseDuration(text); err != nil || *to < least || *to > most {
		return fmt.Errorf("must be a duration from %s to %s", least, most)
	}
	return nil
}

// wholeSeconds reads a timeout of a function.
func wholeSeconds(to *time.Duration, text string, least time.Duration) error {
	err := span(to, text, least, 15*time.Minute)
	if *to%time.Second != 0 {
		return errors.New("must be whole seconds")
	}
	return err
}

// wholeHours reads a time that an alarm looks back.
func wholeHours(to *time.Duration, text string, most time.Duration) error {
	err := span(to, text, time.Hour, most)
	if *to%time.Hour != 0 {
		return errors.New("must be whole hours")
	}
	return err
}

// ParseDuration parses a duration as [time.ParseDuration] does, and also whole days, 30d, and
// years of 366 days, 7y, so that no retention is too short.
func ParseDuration(text string) (time.Duration, error) {
	if years, ok := strings.CutSuffix(text, "y"); ok {
		n, err := strconv.ParseUint(years, 10, 8)
		return time.Duration(n) * 366 * day, err
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * day, err
	}
	return time.ParseDuration(text)
}

// parseURL reads an https URL, or an http URL of a loopback address, without query,
// fragment or user. It removes a trailing slash.
func parseURL(to **url.URL, text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return errors.New("must be an https URL")
	case u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())):
		return errors.New("must be an https URL; http is for loopback addresses only")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("must have no user, query or fragment")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	*to = u
	return nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, _ := netip.ParseAddr(host) // the zero Addr is no loopback address
	return ip.IsLoopback()
}

// parseNetworks reads networks of which none contains another. 0.0.0.0/0 and ::/0 allow every
// address of their version, so that with them no other network restricts anything.
func parseNetworks(to *[]netip.Prefix, text string) error {
	return listOf(to, text, func(part string) (netip.Prefix, error) {
		p, err := netip.ParsePrefix(part)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return p, fmt.Errorf("must be networks of IPv4 or IPv6 in CIDR notation without host bits, joined by "+
				"semicolons; %q is none", part)
		}
		for _, other := range *to {
			if p.Overlaps(other) || p.Bits() == 0 || other.Bits() == 0 {
				return p, fmt.Errorf("must be networks of which none contains another, or only 0.0.0.0/0 or ::/0; it "+
					"has %s and %s", other, p)
			}
		}
		return p, nil
	})
}

func parseExponent(text string) (int, error) {
	e, err := strconv.ParseInt(text, 10, 32)
	if err != nil || e < 3 || e%2 == 0 {
		return 0, errors.New("must be odd numbers from 3 to 2147483647, joined by semicolons")
	}
	return int(e), nil
}

// parseScopes reads scopes of RFC 6749, section 3.3: visible ASCII characters except
// quotation mark and backslash.
func parseScopes(to *[]string, text string) error {
	*to = strings.Fields(text)
	if strings.ContainsFunc(strings.Join(*to, ""), func(c rune) bool {
		return c <= ' ' || c > '~' || c == '"' || c == '\\'
	}) {
		return errors.New("must be visible ASCII without quotation marks and backslashes, joined by spaces")
	}
	return nil
}

// listOf reads values that are joined by semicolons.
func listOf[T any](to *[]T, text string, parse func(string) (T, error)) error {
	parts, err := list(text)
	if err != nil {
		return err
	}
	for _, part := range parts {
		value, err := parse(part)
		if err != nil {
			return err
		}
		*to = append(*to, value)
	}
	return nil
}

// list splits text at semicolons, because names of certificates have commas and spaces. A
// semicolon after a backslash is part of a name. No part is blank, so that a variable without a
// value does not remove a restriction.
func list(text string) (parts []string, err error) {
	start, escaped := 0, false
	for i, c := range text + ";" {
		if c == ';' && (!escaped || i == len(text)) {
			part := strings.TrimSpace(text[start:i])
			if parts = append(parts, part); part == "" {
				return nil, fmt.Errorf("element %d is empty", len(parts))
			}
			start = i + 1
		}
		escaped = c == '\\' && !escaped
	}
	return parts, nil
}

func parseKeyARN(text string) (arn string, err error) {
	err = keyARN.parse(&arn, text)
	return arn, err
}
