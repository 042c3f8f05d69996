package bus

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"strconv"
	"strings"

	"payhook.example/shared/payment"
)

// maxDepth is how many levels of nested JSON PutEvents processes (AWS, "PutEvents" in the EventBridge API reference).
const maxDepth = 1000

// DetailError is the part of an event's detail that EventBridge documents to reject.
type DetailError struct {
	// Pointer leads to the value (RFC 6901). It holds names of the payload, so it must not be logged or answered.
	Pointer jsontext.Pointer
	Problem string // as in "is an integer outside 64 bits"
}

// Error names the field as [payment.Path] does, so it quotes nothing of the payload.
func (e *DetailError) Error() string {
	return fmt.Sprintf("event.%s: %s", payment.Path(e.Pointer), e.Problem)
}

// Check returns a [*DetailError] if EventBridge documents that it rejects an event with this detail, whatever else is
// in the request: an integer outside 64 bits, or more than 1000 levels (AWS, "PutEvents" in the EventBridge API
// reference). A number with a fraction or an exponent is not an integer; the reference states no limit for it. detail
// must be a valid JSON object. Check is safe for concurrent use.
func Check(detail []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(detail), jsontext.AllowDuplicateNames(true))
	for {
		token, err := dec.ReadToken()
		if err != nil {
			return nil // the end
		}
		switch kind := token.Kind(); {
		case dec.StackDepth() > maxDepth:
			return &DetailError{dec.StackPointer(), fmt.Sprintf("is nested deeper than %d levels", maxDepth)}
		case kind == '0' && !strings.ContainsAny(token.String(), ".eE"):
			if _, err := strconv.ParseInt(token.String(), 10, 64); err != nil {
				return &DetailError{dec.StackPointer(), "is an integer outside 64 bits"}
			}
		}
	}
}
