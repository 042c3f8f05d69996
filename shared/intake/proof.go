package intake

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/keys"
	"payhook.example/shared/parking"
	"payhook.example/shared/signature"
)

// What a replay can't verify.
const (
	// A certificate is public, and says nothing of the payload beside it.
	noSignature = "a delivery by mTLS has no signature: that this client sent this payload rests on who may write to the parking bucket"
	otherCAs    = "the truststore does not trust the client certificate: it was verified with the CAs that are stored with the delivery"
)

// parkedCertificate returns what is parked of a client certificate.
func parkedCertificate(payload []byte, proof proof) *parking.Certificate {
	digest := sha256.Sum256(payload)
	c := &parking.Certificate{
		PayloadDigest: digest[:], Fingerprint: clientcert.Fingerprint(proof.chain[0]), AcceptedAt: proof.acceptedAt,
	}
	for _, one := range proof.chain {
		c.Chain = append(c.Chain, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one.Raw})))
	}
	return c
}

// errAltered is returned when a part of a parked delivery is not what was parked.
var errAltered = errors.New("intake: the payload or the certificate is not the one that was parked")

// verifyParked returns the proof of a parked delivery once it is verified, every
// part of it. A delivery without a certificate must be signed.
func (r *Receiver) verifyParked(p parking.Parked, result *Result) (proof proof, err error) {
	if p.Certificate != nil {
		if proof.chain, err = r.verifyParkedCertificate(p, result); err != nil {
			return proof, err
		}
		proof.acceptedAt, result.Certificate = p.Certificate.AcceptedAt, proof.chain[0]
		if p.Signature == "" && p.KeyID == "" && p.Timestamp == "" && len(p.JWK) == 0 {
			addUnverified(result, noSignature)
			return proof, nil
		}
	}
	proof.Proof = signature.Proof{Timestamp: p.Timestamp, KeyID: p.KeyID, Signature: p.Signature}
	key, err := keys.ParseJWK(p.JWK, p.KeyID, r.opts.Exponents)
	if err == nil {
		err = signature.Verify(key, p.Payload, proof.Proof)
	}
	if err != nil {
		return proof, err
	}
	result.KeyID, result.Key.Key = p.KeyID, key
	return proof, nil
}

// verifyParkedCertificate returns the chain that is parked with a delivery.
func (r *Receiver) verifyParkedCertificate(p parking.Parked, result *Result) (chain []*x509.Certificate, err error) {
	for _, text := range p.Certificate.Chain {
		c, err := clientcert.Parse(text)
		if err != nil {
			return nil, err
		}
		chain = append(chain, c)
	}
	digest := sha256.Sum256(p.Payload)
	if len(chain) == 0 || clientcert.Fingerprint(chain[0]) != p.Certificate.Fingerprint ||
		!bytes.Equal(digest[:], p.Certificate.PayloadDigest) {
		return nil, errAltered
	}
	verify := func(truststore *clientcert.Truststore) error {
		_, err := clientcert.NewVerifier(truststore, clientcert.Policy{}).VerifyCertificate(chain[0], p.Certificate.AcceptedAt)
		return err
	}
	if r.opts.Truststore != nil && verify(r.opts.Truststore) == nil {
		return chain, nil
	}
	if err := verify(clientcert.TruststoreOf(chain...)); err != nil {
		return nil, err
	}
	addUnverified(result, otherCAs)
	return chain, nil
}

func addUnverified(result *Result, what string) {
	if result.Unverified != "" {
		result.Unverified += "; "
	}
	result.Unverified += what
}
