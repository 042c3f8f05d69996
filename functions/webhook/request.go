package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/intake"
)

// request is what the function reads of an event with payload format 2.0, which
// function URLs and HTTP APIs send (AWS, "Invoking Lambda function URLs" in the Lambda
// developer guide, https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html).
type request struct {
	version     string
	rawPath     string
	rawQuery    string
	headers     map[string]string
	domainName  string
	apiID       string
	method      string
	sourceIP    string
	certificate clientcert.Presented
	body        jsontext.Value // a JSON string, which is a part of the event; nil for none
	encoded     bool           // body is in base64
}

// decodeRequest decodes an event. It reads the event once and skips what the function
// does not use: half of the CPU time of a large delivery would be spent on the body if
// it was decoded by reflection. A member that is null counts as absent. Of members with
// the same name, the last counts, and invalid UTF-8 is replaced, as in encoding/json.
func decodeRequest(event []byte) (request, error) {
	d := decoder{dec: jsontext.NewDecoder(bytes.NewBuffer(event), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))}
	var r request
	d.object(func(name []byte) {
		switch string(name) {
		case "version":
			d.text(&r.version)
		case "rawPath":
			d.text(&r.rawPath)
		case "rawQueryString":
			d.text(&r.rawQuery)
		case "headers":
			r.headers = map[string]string{}
			d.object(func(name []byte) {
				header := string(name)
				var value string
				d.text(&value)
				r.headers[header] = value
			})
		case "requestContext":
			d.requestContext(&r)
		case "body":
			if v := d.string(); v != nil {
				end := int(d.dec.InputOffset())
				r.body = event[end-len(v) : end] // v is valid until the next value is read
			}
		case "isBase64Encoded":
			r.encoded = d.bool()
		default:
			d.skip()
		}
	})
	if d.err == nil {
		if _, err := d.dec.ReadToken(); err != io.EOF {
			d.fail("the event is not one JSON object")
		}
	}
	if d.err != nil {
		return request{}, fmt.Errorf("webhook: decode the event: %w", d.err)
	}
	return r, nil
}

func (d *decoder) requestContext(r *request) {
	d.object(func(name []byte) {
		switch string(name) {
		case "domainName":
			d.text(&r.domainName)
		case "apiId":
			d.text(&r.apiID)
		case "http":
			d.object(func(name []byte) {
				switch string(name) {
				case "method":
					d.text(&r.method)
				case "sourceIp":
					d.text(&r.sourceIP)
				default:
					d.skip()
				}
			})
		case "authentication":
			d.object(func(name []byte) {
				if string(name) == "clientCert" {
					d.clientCert(&r.certificate)
				} else {
					d.skip()
				}
			})
		default:
			d.skip()
		}
	})
}

func (d *decoder) clientCert(c *clientcert.Presented) {
	d.object(func(name []byte) {
		switch string(name) {
		case "clientCertPem":
			d.text(&c.PEM)
		case "subjectDN":
			d.text(&c.SubjectDN)
		case "issuerDN":
			d.text(&c.IssuerDN)
		case "serialNumber":
			d.text(&c.SerialNumber)
		case "validity":
			d.object(func(name []byte) {
				switch string(name) {
				case "notBefore":
					d.text(&c.NotBefore)
				case "notAfter":
					d.text(&c.NotAfter)
				default:
					d.skip()
				}
			})
		default:
			d.skip()
		}
	})
}

// decoder reads values one after the other. After an error, object reads nothing more.
type decoder struct {
	dec *jsontext.Decoder
	err error
}

func (d *decoder) fail(problem string) {
	if d.err == nil {
		d.err = errors.New(problem)
	}
}

// value returns the next value, which is valid until the next one is read. With an
// error it returns nil, which has no kind.
func (d *decoder) value() jsontext.Value {
	v, err := d.dec.ReadValue()
	if err != nil {
		d.fail("it is not JSON") // the error may quote the event
		return nil
	}
	return v
}

func (d *decoder) skip() { d.value() }

// object calls member with the name of each member of an object, which must read the
// value. The name is valid until then.
func (d *decoder) object(member func(name []byte)) {
	if kind := d.dec.PeekKind(); kind != '{' {
		if d.value(); kind != 'n' {
			d.fail("a member that must be an object is not")
		}
		return
	}
	_, _ = d.dec.ReadToken() // the beginning, which was seen
	for d.err == nil && d.dec.PeekKind() != '}' {
		if name := d.value(); d.err == nil {
			member(plain(name))
		}
	}
	if d.err == nil {
		_, _ = d.dec.ReadToken() // the end, which was seen
	}
}

// string returns the next value, which is a string, as JSON; nil for null.
func (d *decoder) string() jsontext.Value {
	v := d.value()
	switch {
	case v.Kind() == 'n':
		return nil
	case v.Kind() != '"':
		d.fail("a member that must be a string is not")
		return nil
	}
	return v
}

func (d *decoder) text(s *string) {
	if v := d.string(); v != nil {
		*s = string(plain(v))
	}
}

func (d *decoder) bool() bool {
	v := d.value()
	switch {
	case v.Kind() == 'n':
		return false
	case v.Kind() != 't' && v.Kind() != 'f':
		d.fail("a member that must be true or false is not")
	}
	return v.Kind() == 't'
}

// plain returns the text of a JSON string as unquote does, in the memory of the string if
// it is there as it is.
func plain(v jsontext.Value) []byte {
	if text := v[1 : len(v)-1]; bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return text
	}
	return unquote(v)
}

// unquote returns the text of a JSON string, in memory of its own: Lambda's library uses
// the event's memory again. It replaces invalid UTF-8.
func unquote(v jsontext.Value) []byte {
	text, _ := jsontext.AppendUnquote(make([]byte, 0, len(v)), v)
	return text
}

// payload returns the bytes that were sent.
func (r request) payload(maxBytes int) ([]byte, error) {
	var payload []byte
	switch {
	case r.body == nil:
	case !r.encoded:
		payload = unquote(r.body)
	default:
		text := r.body[1 : len(r.body)-1]
		if bytes.IndexByte(text, '\\') >= 0 {
			text = unquote(r.body)
		}
		payload = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := base64.StdEncoding.Decode(payload, text)
		if err != nil {
			return nil, intake.ErrPayloadEncoding
		}
		payload = payload[:n]
	}
	switch {
	case len(payload) == 0:
		return nil, intake.ErrPayloadEmpty
	case len(payload) > maxBytes:
		return nil, intake.ErrPayloadTooLarge
	}
	return payload, nil
}
