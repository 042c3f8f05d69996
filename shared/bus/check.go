package bus

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"strconv"

	"payhook.example/shared/payment"
)

// maxDepth is how many levels of nested JSON PutEvents processes (AWS,
// "PutEvents" in the EventBridge API reference).
const maxDepth = 1000

// DetailError is the part of an event's detail that EventBridge documents to
// reject.
type DetailError struct {
	// Pointer leads to the value (RFC 6901). It holds names of the payload, so it
	// must not be logged or answered.
	Pointer jsontext.Pointer
	Problem string // as in "is an integer outside 64 bits"
}

// Error names the field as [payment.Path] does, so it quotes nothing of the
// payload.
func (e *DetailError) Error() string {
	return fmt.Sprintf("event.%s: %s", payment.Path(e.Pointer), e.Problem)
}

// Check returns a [*DetailError] if EventBridge documents that it rejects an
// event with this detail, whatever else is in the request: an integer outside
// 64 bits, or more than 1000 levels (AWS, "PutEvents" in the EventBridge
// API reference). A number with a fraction or an exponent is not an integer;
// the reference states no limit for it. detail must be a valid JSON object.
// Check is safe for concurrent use.
func Check(detail []byte) error {
	if !suspicious(detail) {
		return nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(detail), jsontext.AllowDuplicateNames(true))
	for {
		token, err := dec.ReadToken()
		if err != nil {
			return nil // the end
		}
		switch kind := token.Kind(); {
		case dec.StackDepth() > maxDepth:
			return &DetailError{dec.StackPointer(), fmt.Sprintf("is nested deeper than %d levels", maxDepth)}
		case kind == '0' && isInteger(token.String()):
			if _, err := strconv.ParseInt(token.String(), 10, 64); err != nil {
				return &DetailError{dec.StackPointer(), "is an integer outside 64 bits"}
			}
		}
	}
}

// suspicious reports whether detail may hold what EventBridge rejects. It reads
// the bytes once and allocates nothing.
func suspicious(detail []byte) bool {
	const digits64 = 19 // of the greatest integer of 64 bits
	var depth, digits int
	for i := 0; i < len(detail); i++ {
		c := detail[i]
		if '0' <= c && c <= '9' {
			if digits++; digits >= digits64 {
				return true
			}
			continue
		}
		digits = 0
		switch c {
		case '"':
			for i++; i < len(detail) && detail[i] != '"'; i++ {
				if detail[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > maxDepth {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

func isInteger(number string) bool {
	for i := range len(number) {
		if c := number[i]; c == '.' || c == 'e' || c == 'E' {
			return false
		}
	}
	return true
}
