package signature_test

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"log"

	"payhook.example/shared/signature"
)

func ExampleVerify() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		log.Fatal(err)
	}
	payload := []byte(`{"deliveryId":"b3f9c1de-6a0e-4c5b-8f7d-2e1a9c4b5d60","events":[]}`)
	proof := signature.Parts{
		Timestamp: "2026-01-31T12:00:00.000Z",
		KeyID:     "0b7e4c1e-3d43-4f26-9c0d-2f1f6a5b7c8d",
	}
	proof.Signature, err = signature.Sign(key, payload, proof.Timestamp, proof.KeyID)
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println("as signed:", signature.Verify(&key.PublicKey, payload, proof))

	payload[0] = ' '
	err = signature.Verify(&key.PublicKey, payload, proof)
	fmt.Println("one byte changed:", errors.Is(err, signature.ErrMismatch))
	// Output:
	// as signed: <nil>
	// one byte changed: true
}
