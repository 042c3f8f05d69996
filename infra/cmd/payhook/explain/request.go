package explain

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/spf13/pflag"
	"mvdan.cc/sh/v3/shell"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/explain"
	"payhook.example/shared/refused"
)

// source is a request with what else its file says.
type source struct {
	explain.Request
	notes    []string          // what was done to read it
	settings map[string]string // that rejected it; nil: not known
}

// parseRequest reads a request in one of the formats of the command.
func parseRequest(text []byte) (source, error) {
	start := bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\ufeff")), " \t\r\n")
	command := bytes.TrimLeft(start, "$ ")
	switch {
	case len(start) == 0:
		return source{}, errors.New("it is empty")
	case start[0] == '{':
		return parseJSON(start)
	case bytes.HasPrefix(command, []byte("curl ")), bytes.HasPrefix(command, []byte("curl.exe ")):
		return parseCurl(string(command))
	}
	return parseDump(start)
}

// captured returns the request of a captured webhook.
func captured(r refused.Request) source {
	s := source{
		Method: r.Method, Path: r.Path, RawQuery: r.RawQuery, Headers: r.Headers, Payload: r.Payload,
		ReceivedAt: r.ReceivedAt, settings: r.Settings}
	if r.Payload == nil {
		s.Missing = r.PayloadBytes
	}
	s.notes = append(s.notes, "It was rejected as "+r.Outcome+" at "+cli.Stamp(r.ReceivedAt)+".")
	return s
}

// parseJSON reads a captured webhook, or an event of a function URL or of an HTTP API.
func parseJSON(text []byte) (source, error) {
	var stored refused.Request
	if err := json.Unmarshal(text, &stored); err == nil && stored.Outcome != "" && stored.Settings != nil {
		if stored.Payload == nil && stored.PayloadBytes > 0 && stored.PayloadBytes <= refused.MaxPayload {
			return source{}, errors.New("its payload is missing: payhook refused show NAME --payload --json prints it")
		}
		return captured(stored), nil
	}
	var event events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(text, &event); err != nil || event.Headers == nil {
		return source{}, errors.New("it is JSON, but neither an event of a function URL with its headers nor a " +
			"captured request. A body alone cannot be explained: its headers are needed")
	}
	s := source{
		Method: event.RequestContext.HTTP.Method, Path: event.RawPath, RawQuery: event.RawQueryString,
		Headers: event.Headers, Payload: []byte(event.Body)}
	if event.IsBase64Encoded {
		var err error
		if s.Payload, err = base64.StdEncoding.DecodeString(event.Body); err != nil {
			return s, errors.New("isBase64Encoded is true, and the body is not base64")
		}
	}
	if at := event.RequestContext.TimeEpoch; at > 0 {
		s.ReceivedAt = time.UnixMilli(at)
	}
	return s, nil
}

// parseDump reads a request as HTTP/1.1 has it: request line, headers, an empty line and
// the body.
func parseDump(text []byte) (s source, err error) {
	head, body := text, []byte(nil)
	end := -1
	for _, empty := range []string{"\r\n\r\n", "\n\n"} {
		if i := bytes.Index(text, []byte(empty)); i >= 0 && (end < 0 || i < end) {
			end = i
			head, body = text[:i+len(empty)], text[i+len(empty):]
		}
	}
	if end < 0 {
		return s, errors.New("it has no empty line between the headers and the body: a dump consists of the request " +
			"line, the headers, an empty line and the body")
	}
	r := textproto.NewReader(bufio.NewReader(bytes.NewReader(head)))
	line, err := r.ReadLine()
	if err != nil {
		return s, err
	}
	words := strings.Fields(line)
	if len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/") {
		return s, errors.New("its first line is not a request line such as POST / HTTP/1.1, and it is neither a curl " +
			"command nor JSON")
	}
	header, err := r.ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("its headers cannot be read: %w", err)
	}
	s.Method = words[0]
	if err := s.target(words[1]); err != nil {
		return s, err
	}
	s.Headers = map[string]string{}
	for name, values := range header {
		s.Headers[strings.ToLower(name)] = strings.Join(values, ",") // as function URLs do
	}
	s.Payload = body
	if strings.EqualFold(header.Get("Transfer-Encoding"), "chunked") {
		if whole, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(body))); err == nil {
			s.Payload = whole
			s.notes = append(s.notes, "The body was put together from its chunks.")
		}
		return s, nil
	}
	// Many programs end a file with a line feed.
	if n, err := strconv.Atoi(header.Get("Content-Length")); err == nil && n >= 0 && n < len(body) &&
		strings.Trim(string(body[n:]), "\r\n") == "" {
		s.Payload = body[:n]
		s.notes = append(s.notes, fmt.Sprintf("The file has %d bytes of line breaks after the body, whose length is "+
			"that of Content-Length. They were left out.", len(body)-n))
	}
	return s, nil
}

// target reads the path and the query of a request target or URL.
func (s *source) target(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("its URL cannot be read: %w", err)
	}
	s.Path, s.RawQuery = u.Path, u.RawQuery
	return nil
}

// data is the body of a curl command, which several flags add to.
type data struct {
	body  *[]byte
	given *bool
	read  func(name string, body []byte) []byte
	file  bool // @NAME is a file
}

func (d data) String() string { return "" }
func (d data) Type() string   { return "data" }

func (d data) Set(text string) error {
	body := []byte(text)
	if name, is := strings.CutPrefix(text, "@"); is && d.file {
		read, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("the body is in another file: %w", err)
		}
		body = d.read(name, read)
	}
	if *d.given {
		*d.body = append(*d.body, '&')
	}
	*d.body, *d.given = append(*d.body, body...), true
	return nil
}

// parseCurl reads a curl command for a POSIX shell, as browsers and tools copy it.
// Nothing in it is executed.
func parseCurl(text string) (s source, err error) {
	words, err := shell.Fields(text, func(string) string { return "" })
	if err != nil {
		return s, fmt.Errorf("the curl command cannot be read: %w. It must be one for a POSIX shell, without "+
			"substitutions", err)
	}
	f := pflag.NewFlagSet("curl", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	headers := f.StringArrayP("header", "H", nil, "")
	method := f.StringP("request", "X", "", "")
	address := f.String("url", "", "")
	asQuery := f.BoolP("get", "G", false, "")
	agent := f.StringP("user-agent", "A", "", "")
	var body []byte
	var given, isJSON bool
	asIs := func(_ string, b []byte) []byte { return b }
	// curl removes line breaks and NUL bytes from a file of --data.
	stripped := func(_ string, b []byte) []byte {
		return bytes.Map(func(r rune) rune {
			if r == '\r' || r == '\n' || r == 0 {
				return -1
			}
			return r
		}, b)
	}
	f.VarP(data{body: &body, given: &given, read: stripped, file: true}, "data", "d", "")
	f.Var(data{body: &body, given: &given, read: stripped, file: true}, "data-ascii", "")
	f.Var(data{body: &body, given: &given, read: asIs, file: true}, "data-binary", "")
	f.Var(data{body: &body, given: &given, read: asIs}, "data-raw", "")
	f.Var(data{body: &body, given: &given, read: asIs, file: true}, "json", "")
	for _, flag := range []struct{ name, short string }{{"compressed", ""}, {"insecure", "k"}, {"silent", "s"},
		{"show-error", "S"}, {"include", "i"}, {"location", "L"}, {"verbose", "v"}, {"http1.1", ""}, {"http2", ""},
		{"globoff", "g"}, {"fail", "f"}} {
		f.BoolP(flag.name, flag.short, false, "")
	}
	for _, flag := range []struct{ name, short string }{{"cookie", "b"}, {"user", "u"}, {"referer", "e"},
		{"output", "o"},
		{"write-out", "w"}, {"max-time", "m"}, {"connect-timeout", ""}, {"cert", "E"}, {"key", ""}, {"cacert", ""},
		{"proxy", "x"}, {"resolve", ""}} {
		f.StringP(flag.name, flag.short, "", "")
	}
	if err := f.Parse(words[1:]); err != nil {
		return s, fmt.Errorf("the curl command cannot be read: %w", err)
	}
	isJSON = f.Changed("json")
	urls := f.Args()
	if *address != "" {
		urls = append(urls, *address)
	}
	if len(urls) != 1 {
		return s, fmt.Errorf("the curl command has %d URLs, and must have one", len(urls))
	}
	if !strings.Contains(urls[0], "://") {
		urls[0] = "https://" + urls[0]
	}
	if err := s.target(urls[0]); err != nil {
		return s, err
	}
	s.Headers = map[string]string{}
	if *agent != "" {
		s.Headers["user-agent"] = *agent
	}
	if given {
		s.Headers["content-type"] = "application/x-www-form-urlencoded"
	}
	if isJSON {
		s.Headers["content-type"] = "application/json"
	}
	own := map[string]bool{}
	for _, line := range *headers {
		name, value, _ := strings.Cut(line, ":")
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
		switch {
		case strings.HasPrefix(name, "@"):
			return s, errors.New("the headers of the curl command are in another file")
		case own[name]:
			value = s.Headers[name] + "," + value
		}
		own[name] = true
		s.Headers[name] = value
	}
	s.Method = "GET"
	switch {
	case *method != "":
		s.Method = *method
	case given && !*asQuery:
		s.Method = "POST"
	}
	if *asQuery {
		s.RawQuery = strings.Trim(s.RawQuery+"&"+string(body), "&")
		return s, nil
	}
	s.Payload = body
	return s, nil
}
