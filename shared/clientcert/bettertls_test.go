package clientcert_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"maps"
	"math/big"
	"testing"
	"time"

	"github.com/Netflix/bettertls/test-suites/pathbuilding"

	"payhook.example/shared/clientcert"
	"payhook.example/shared/paymenttest"
)

// TestBetterTLSPathBuilding tests the verifier with the trust graphs of BetterTLS, a
// public test suite. The certificates of the suite are for servers, so the test builds
// the same graphs from certificates for clients. It omits the cases with name
// constraints, which apply to the names of servers.
func TestBetterTLSPathBuilding(t *testing.T) {
	provider := pathbuilding.NewTestCaseProvider()
	n, err := provider.GetTestCaseCount()
	if err != nil {
		t.Fatal(err)
	}
	results := map[bool]int{}
	for i := range n {
		c, err := provider.GetTestCase(i)
		if err != nil {
			t.Fatal(err)
		}
		test := c.(*pathbuilding.TestCaseImpl)
		g := test.ExplicitTestCase
		t.Run(fmt.Sprintf("%d %s %s", i, g.TrustGraph.Name(), test.InvalidReason), func(t *testing.T) {
			leaf, cas := graph(t, test)
			// API Gateway and the verifier accept chains of up to 4 CAs, BetterTLS of any length.
			length := shortest(g)
			want := length > 0 && length-1 <= clientcert.MaxChain
			results[want]++
			for _, one := range leaf {
				_, err := clientcert.NewVerifier(clientcert.TruststoreOf(cas...), clientcert.Policy{}).Verify(
					clientcert.Presented{PEM: string(paymenttest.EncodeCertificate(one))}, time.Now())
				if (err == nil) != want {
					t.Errorf("a chain of %d: %v", length, err)
				}
			}
		})
	}
	if results[true] < 10 || results[false] < 10 {
		t.Errorf("%d paths and %d graphs without one", results[true], results[false])
	}
}

// shortest returns the number of certificates of the shortest chain, 0 if there is none.
func shortest(g *pathbuilding.ExplicitTestCase) int {
	reached := map[string]bool{g.SrcNode: true}
	for length := 1; ; length++ {
		if reached[g.DstNode] {
			return length
		}
		next := maps.Clone(reached)
		for _, edge := range g.TrustGraph.GetAllEdges() {
			if reached[edge.Source] && !edge.MemberOf(g.InvalidEdges) {
				next[edge.Destination] = true
			}
		}
		if len(next) == len(reached) {
			return 0
		}
		reached = next
	}
}

// graph creates the certificates of a test case: those of its leaf, and those of all
// CAs including the trust anchor.
func graph(t *testing.T, test *pathbuilding.TestCaseImpl) (leaves, cas []*x509.Certificate) {
	t.Helper()
	g := test.ExplicitTestCase
	keys := map[string]*ecdsa.PrivateKey{}
	for _, name := range g.TrustGraph.NodeNames() {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys[name] = key
	}
	serial := int64(0)
	sign := func(from, to string, invalid bool) *x509.Certificate {
		serial++
		template := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: to},
			NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
		}
		if to == g.DstNode {
			template.KeyUsage, template.IsCA, template.DNSNames = x509.KeyUsageDigitalSignature, false,
				[]string{"localhost"}
			template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}
		if invalid {
			switch test.InvalidReason {
			case pathbuilding.INVALID_REASON_EXPIRED:
				template.NotAfter = time.Now().Add(-time.Hour)
			case pathbuilding.INVALID_REASON_NAME_CONSTRAINTS:
				template.PermittedDNSDomainsCritical, template.PermittedDNSDomains = true, []string{"bad.example.com"}
			case pathbuilding.INVALID_REASON_BAD_EKU:
				template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection}
			case pathbuilding.INVALID_REASON_MISSING_BASIC_CONSTRAINTS:
				template.BasicConstraintsValid, template.IsCA = false, false
			case pathbuilding.INVALID_REASON_NOT_A_CA:
				template.IsCA = false
			case pathbuilding.INVALID_REASON_DEPRECATED_CRYPTO:
				template.SignatureAlgorithm = x509.ECDSAWithSHA1
			default:
				t.Fatalf("unknown reason %s", test.InvalidReason)
			}
		}
		der, err := x509.CreateCertificate(rand.Reader, template,
			&x509.Certificate{Subject: pkix.Name{CommonName: from}}, keys[to].Public(), keys[from])
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	cas = append(cas, sign(g.SrcNode, g.SrcNode, false))
	for _, edge := range g.TrustGraph.GetAllEdges() {
		c := sign(edge.Source, edge.Destination, edge.MemberOf(g.InvalidEdges))
		if edge.Destination == g.DstNode {
			leaves = append(leaves, c)
		} else {
			cas = append(cas, c)
		}
	}
	return leaves, cas
}
