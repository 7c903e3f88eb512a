package sheet

import (
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{5, 1}, 3}, {[]float64{9, 1, 2}, 2}} {
		before := slices.Clone(tc.values)
		if got := Median(tc.values); got != tc.want || !slices.Equal(tc.values, before) {
			t.Errorf("Median(%v) = %v, values then %v; want %v, untouched", before, got, tc.values, tc.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, tc := range []struct {
		values []float64
		share  float64
		want   float64
	}{{nil, 0.5, 0}, {[]float64{7}, 0.99, 7}, {[]float64{2, 1}, 0.5, 1}, {hundred, 0.99, 99}, {hundred[:50], 0.99, 100}} {
		if got := Quantile(tc.values, tc.share); got != tc.want {
			t.Errorf("Quantile of %d values, %v = %v; want %v", len(tc.values), tc.share, got, tc.want)
		}
	}
}

func TestCell(t *testing.T) {
	c := NewCell("serry", []float64{2, 1, 300})
	c.Judge("<= 2", true)
	if got, want := c.String()+" "+c.RatioText()+" "+c.Bar+" "+c.Kept, "2.00 (1.00-300) - <= 2 ok"; got != want {
		t.Errorf("cell prints %s; want %s", got, want)
	}
	if got := NewCell("stock", nil).String(); got != "-" {
		t.Errorf("cell without rounds prints %s; want -", got)
	}
}
