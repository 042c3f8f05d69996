package keys

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/clientcert"
)

// AcceptedCertificate is what the table holds of the client certificate that was
// accepted last.
type AcceptedCertificate struct {
	Subject      string    `json:"subject"` // RFC 4514
	Issuer       string    `json:"issuer"`
	SerialNumber string    `json:"serialNumber"` // hexadecimal
	Fingerprint  string    `json:"fingerprint"`  // SHA-256, hexadecimal
	Pin          string    `json:"pin"`          // SHA-256 of its subject public key info, hexadecimal
	NotAfter     time.Time `json:"notAfter"`
	AcceptedAt   time.Time `json:"acceptedAt"`
}

// CertificateAPI is the part of DynamoDB that [Certificates] needs.
type CertificateAPI interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// CertificateReadAPI is the part of DynamoDB that [LastCertificate] needs.
type CertificateReadAPI interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// lastCertificateID is the partition key of the one item. It has no expiry: it says
// which certificate has expired, however long ago.
const lastCertificateID = "certificate#last"

// certificateEvery is how often one function instance writes one certificate.
const certificateEvery = 24 * time.Hour

// Certificates writes to the table of keys which client certificate was accepted
// last. It is safe for concurrent use.
type Certificates struct {
	client CertificateAPI
	table  string

	mu      sync.Mutex
	written map[string]time.Time // by fingerprint
}

// NewCertificates returns the writer of the table of that name.
func NewCertificates(client CertificateAPI, table string) *Certificates {
	return &Certificates{client: client, table: table, written: map[string]time.Time{}}
}

// Record writes that a certificate was accepted. It writes each certificate at most
// once a day, so that AcceptedAt is up to a day old where several certificates are in
// use. After an error, it writes with the next call.
func (c *Certificates) Record(ctx context.Context, certificate *x509.Certificate, now time.Time) error {
	fingerprint := clientcert.Fingerprint(certificate)
	if !c.due(fingerprint, now) {
		return nil
	}
	pin := clientcert.PinOf(certificate)
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	item := itemKey(lastCertificateID)
	item["subject"] = text(clientcert.Subject(certificate))
	item["issuer"] = text(clientcert.Issuer(certificate))
	item["serialNumber"] = text(clientcert.SerialOf(certificate).Number)
	item["fingerprint"] = text(fingerprint)
	item["pin"] = text(hex.EncodeToString(pin[:]))
	item["notAfter"] = number(certificate.NotAfter.Unix())
	item["acceptedAt"] = number(now.UnixMilli())
	_, err := c.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                 &c.table,
		Item:                      item,
		ConditionExpression:       aws.String("attribute_not_exists(acceptedAt) OR acceptedAt <= :at"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":at": number(now.UnixMilli())},
	})
	if _, refused := conditionFailed(err); err != nil && !refused {
		c.mu.Lock()
		delete(c.written, fingerprint)
		c.mu.Unlock()
		return fmt.Errorf("keys: table: record certificate: %w", err)
	}
	return nil
}

// due reports whether a certificate is to be written now, and notes that it is.
func (c *Certificates) due(fingerprint string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.written[fingerprint]; ok && now.Sub(at) < certificateEvery {
		return false
	}
	for other, at := range c.written {
		if now.Sub(at) >= certificateEvery {
			delete(c.written, other)
		}
	}
	c.written[fingerprint] = now
	return true
}

// LastCertificate returns the client certificate that was accepted last, or nil if
// none was.
func LastCertificate(ctx context.Context, client CertificateReadAPI, table string) (*AcceptedCertificate, error) {
	out, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: itemKey(lastCertificateID)})
	if err != nil {
		return nil, fmt.Errorf("keys: table: last certificate: %w", err)
	}
	text := func(name string) string {
		s, ok := out.Item[name].(*types.AttributeValueMemberS)
		if !ok {
			return ""
		}
		return s.Value
	}
	if text("fingerprint") == "" {
		return nil, nil
	}
	last := &AcceptedCertificate{
		Subject: text("subject"), Issuer: text("issuer"), SerialNumber: text("serialNumber"),
		Fingerprint: text("fingerprint"), Pin: text("pin"), AcceptedAt: milliseconds(out.Item["acceptedAt"]).UTC(),
	}
	if n, ok := out.Item["notAfter"].(*types.AttributeValueMemberN); ok {
		if seconds, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
			last.NotAfter = time.Unix(seconds, 0).UTC()
		}
	}
	return last, nil
}

// TrustDaysLeft returns how many days are left until a CA of the truststore or the
// certificate that was accepted last expires, whichever is first; 0 if one has. last
// may be nil.
func TrustDaysLeft(truststore *clientcert.Truststore, last *AcceptedCertificate, now time.Time) float64 {
	expires := truststore.Expires()
	if last != nil && last.NotAfter.Before(expires) {
		expires = last.NotAfter
	}
	return max(0, expires.Sub(now).Hours()/24)
}
