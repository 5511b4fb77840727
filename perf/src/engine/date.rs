//! The `date` header's form (RFC 9110 section 5.6.7). Pure: the time is an argument.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The IMF-fixdate of a Unix time in seconds.
pub fn http_date(unix: u64) -> String {
    let (day, second) = (unix / 86_400, unix % 86_400);
    let (year, month, date) = civil(day);
    format!(
        "{}, {date:02} {} {year} {:02}:{:02}:{:02} GMT",
        DAYS[(day % 7) as usize],
        MONTHS[month as usize - 1],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of a day number since 1970-01-01, by counting eras of 400 years from March.
fn civil(day: u64) -> (u64, u64, u64) {
    let shifted = day + 719_468;
    let era = shifted / 146_097;
    let in_era = shifted % 146_097;
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * in_year + 2) / 153;
    let date = in_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http_date(1_795_962_235), "Sun, 29 Nov 2026 14:23:55 GMT");
    }
}
