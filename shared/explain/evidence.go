package explain

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// evidence lists the signs that a body is not the one that was sent.
func evidence(r Request) (signs []string) {
	sign := func(format string, args ...any) { signs = append(signs, fmt.Sprintf(format, args...)) }
	header := map[string]string{}
	for name, text := range r.Headers {
		header[strings.ToLower(name)] = text
	}
	p := r.Payload
	if text := header["content-length"]; text != "" {
		if n, err := strconv.Atoi(text); err == nil && n != len(p) {
			sign("Content-Length is %d, and the body has %d bytes: it was changed after that header was "+
				"written.", n, len(p))
		}
	}
	for _, d := range digests(header, p) {
		sign("%s", d)
	}
	if text := header["content-encoding"]; text != "" && !strings.EqualFold(text, "identity") {
		sign("Content-Encoding is %s: the body was compressed when it was sent, and something on the way may have "+
			"decompressed it.", quoted(text))
	}
	if text := strings.ToLower(header["content-type"]); text != "" && !strings.Contains(text, "json") {
		sign("Content-Type is %s, not JSON: a body of another type may be encoded again on the way.", quoted(text))
	} else if strings.Contains(text, "charset=") && !strings.Contains(text, "utf-8") {
		sign("Content-Type has a character set that is not UTF-8: %s.", quoted(text))
	}
	switch {
	case !utf8.Valid(p):
		sign("The body is not valid UTF-8.")
	case bytes.Contains(p, []byte("\uFFFD")):
		sign("The body contains the replacement character U+FFFD: a text was decoded with the wrong character set.")
	}
	if bytes.HasPrefix(p, []byte(bom)) {
		sign("The body begins with a byte order mark, which JSON must not have (RFC 8259, section 8.1).")
	}
	if bytes.Contains(p, []byte("\r\n")) {
		sign("The body contains CR LF.")
	}
	if len(p) > 0 && bytes.TrimSpace(p) != nil && len(bytes.TrimSpace(p)) != len(p) {
		sign("The body begins or ends with white space.")
	}
	if tree, ok := parseJSON(p); !ok {
		sign("The body is not JSON.")
	} else {
		signs = append(signs, serializationSigns(p, tree)...)
	}
	var proxies []string
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if slices.Contains(proxyHeaders, name) || slices.ContainsFunc(proxyPrefixes,
			func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			proxies = append(proxies, name)
		}
	}
	if len(proxies) > 0 {
		sign("The request passed a proxy or a gateway, which can change a body; its headers: %s.",
			strings.Join(proxies, ", "))
	}
	return signs
}

// The headers of proxies that are not those of function URLs and API Gateway
// themselves, which add X-Forwarded-For, -Port and -Proto and X-Amzn-Trace-Id.
var (
	proxyHeaders = []string{"via", "forwarded", "x-forwarded-host", "x-forwarded-server", "x-real-ip", "true-client-ip",
		"x-original-url", "x-envoy-external-address", "x-cloud-trace-context", "x-azure-ref",
		"ngrok-skip-browser-warning",
		"cdn-loop", "x-varnish"}
	proxyPrefixes = []string{"cf-", "x-envoy-", "fastly-", "x-akamai-", "x-ngrok-", "x-sucuri-", "x-amz-cf-"}
)

// digests compares the body with the digests in the headers (RFC 9530, RFC 3230, RFC
// 1864).
func digests(header map[string]string, p []byte) (signs []string) {
	md, sum, long := md5.Sum(p), sha256.Sum256(p), sha512.Sum512(p)
	for _, name := range []string{"content-digest", "repr-digest", "digest", "content-md5"} {
		text := header[name]
		if text == "" {
			continue
		}
		lower := strings.ToLower(text)
		var want []byte
		switch {
		case name == "content-md5":
			want = md[:]
		case strings.Contains(lower, "sha-256="):
			want = sum[:]
		case strings.Contains(lower, "sha-512="):
			want = long[:]
		default:
			continue
		}
		if strings.Contains(text, base64.StdEncoding.EncodeToString(want)) {
			signs = append(signs, fmt.Sprintf("The body has the digest of the header %s, so it was not changed after "+
				"that header was written.", name))
		} else {
			signs = append(signs, fmt.Sprintf("The body does not have the digest of the header %s: it was changed "+
				"on the way.",
				name))
		}
	}
	return signs
}

// serializationSigns lists the signs that a program wrote JSON again.
func serializationSigns(p []byte, tree node) (signs []string) {
	text := bytes.TrimSpace(bytes.TrimPrefix(p, []byte(bom)))
	for _, l := range jsonLayouts[1:] {
		if bytes.Equal(style{layout: l}.write(tree), text) {
			signs = append(signs, "The body is JSON "+l.name+", as a program writes that parsed it; services "+
				"usually send compact JSON.")
			break
		}
	}
	if sortedEverywhere(tree) {
		signs = append(signs, "The names of all objects in the body are in alphabetical order, which some programs "+
			"do when they write JSON again.")
	}
	if amounts := numbersNamed(tree, "amount"); len(amounts) > 0 && !slices.ContainsFunc(amounts,
		func(n string) bool {
			return strings.HasSuffix(n, "0") && strings.Contains(n, ".") || strings.Count(n, ".") == 1
		}) {
		signs = append(signs, "No amount in the body has a decimal point, which some programs remove when they write "+
			"JSON again (1250.00 becomes 1250).")
	}
	return signs
}

// sortedEverywhere reports whether the names of all objects are sorted, and there are
// enough of them to mean something.
func sortedEverywhere(tree node) bool {
	several := 0
	var visit func(n node) bool
	visit = func(n node) bool {
		if len(n.names) > 2 {
			several++
		}
		if !slices.IsSortedFunc(n.names, bytes.Compare) {
			return false
		}
		for _, child := range n.children {
			if !visit(child) {
				return false
			}
		}
		return true
	}
	return visit(tree) && several > 0
}

func numbersNamed(tree node, name string) (found []string) {
	for i, child := range tree.children {
		if i < len(tree.names) && string(tree.names[i]) == strconv.Quote(name) && child.kind == '0' {
			found = append(found, string(child.raw))
		}
		found = append(found, numbersNamed(child, name)...)
	}
	return found
}
