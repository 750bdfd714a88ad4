package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestARotatedSecretIsServedWithoutAFailedHandshake(t *testing.T) {
	const host = "secure.example.com"
	s := newSite(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "certificate", Namespace: s.namespace},
		Type:       corev1.SecretTypeTLS,
		Data:       newCertificate(t, host, 1),
	}
	must(t, s.client.Create(t.Context(), secret))
	s.apply(t, "secure.yaml")
	address := s.address(t, "secure")
	answers(t, "https", address, host, "/")
	must(t, servesSerial(address, host, 1))
	under := begin(t, "https", address, host, "/")

	secret.Data = newCertificate(t, host, 2)
	must(t, s.client.Update(t.Context(), secret))
	eventually(t, "the new certificate is served", func() error { return servesSerial(address, host, 2) })
	under.goOn(t, 50)
	under.mustBeWhole(t)
}

func servesSerial(address, host string, serial int64) error {
	dialer := &net.Dialer{Timeout: requestTimeout}
	config := &tls.Config{InsecureSkipVerify: true, ServerName: host}
	connection, err := tls.DialWithDialer(dialer, "tcp", net.JoinHostPort(address, "443"), config)
	if err != nil {
		return err
	}
	defer connection.Close()
	if shown := connection.ConnectionState().PeerCertificates[0].SerialNumber; shown.Cmp(big.NewInt(serial)) != 0 {
		return fmt.Errorf("the certificate has the serial number %s, and not %d", shown, serial)
	}
	return nil
}

func newCertificate(t *testing.T, host string, serial int64) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: host},
		DNSNames:     []string{host},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}
