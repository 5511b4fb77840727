//! The date that templates print. Owns the calendar and the directives of `strftime` that depend on the date
//! alone; must never read a clock, and refuses directives that tell the time of day, which no two machines
//! agree on.

/// A day in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Days since 1970-01-01.
    days: i64,
}

const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

impl Date {
    /// The day of a moment, in seconds since 1970-01-01 00:00 UTC.
    pub const fn of_unix(seconds: i64) -> Date {
        Date { days: seconds.div_euclid(86_400) }
    }

    /// Reads `2026-12-31`; `None` for what is no day of the calendar.
    pub fn read(text: &str) -> Option<Date> {
        let parts: Vec<&str> = text.split('-').collect();
        let [year, month, day] = parts.as_slice() else { return None };
        let sized = (year.len(), month.len(), day.len()) == (4, 2, 2);
        let number =
            |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse::<i64>().ok())?;
        let (year, month, day) = (number(year)?, number(month)?, number(day)?);
        // Months count from March, so that a leap day is the last of its year.
        let (march_year, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let days = 365 * march_year + march_year.div_euclid(4) - march_year.div_euclid(100)
            + march_year.div_euclid(400)
            + (153 * from_march + 2) / 5
            + day
            - 719_469;
        let date = Date { days };
        (sized && date.civil() == (year, usize::try_from(month).ok()?, day)).then_some(date)
    }

    pub(super) const fn of_days(days: i64) -> Date {
        Date { days }
    }

    /// A number of its own.
    pub(crate) const fn number(self) -> i64 {
        self.days
    }

    pub(super) const fn days(self) -> i64 {
        self.days
    }

    /// Year, month and day of the month in the Gregorian calendar, counted in eras of 400 years that begin
    /// on 1 March.
    fn civil(self) -> (i64, usize, i64) {
        let shifted = self.days + 719_468;
        let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let of_month = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        (400 * era + year + i64::from(month <= 2), usize::try_from(month).unwrap_or(1), of_month)
    }

    fn day_of_year(self) -> i64 {
        let (year, ..) = self.civil();
        let before = year - 1;
        let new_year = 365 * before + before / 4 - before / 100 + before / 400 - 719_162;
        self.days - new_year + 1
    }

    /// `strftime`; the directive that is refused, if any.
    pub(super) fn format(self, format: &str) -> Result<String, String> {
        let (year, month, day) = self.civil();
        let week_day = DAYS[usize::try_from(self.days.rem_euclid(7)).unwrap_or(0)];
        let name = MONTHS[month - 1];
        let mut out = String::new();
        let mut rest = format.chars();
        while let Some(c) = rest.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let first = rest.next();
            let bare = first == Some('-');
            let pad =
                |value: i64, width: usize| if bare { value.to_string() } else { format!("{value:0width$}") };
            let directive = if bare { rest.next() } else { first };
            out.push_str(&match directive {
                Some('d') => pad(day, 2),
                Some('m') => pad(month as i64, 2),
                Some('y') => pad(year % 100, 2),
                Some('j') => pad(self.day_of_year(), 3),
                Some('Y') if !bare => format!("{year:04}"),
                Some('b' | 'h') if !bare => name[..3].to_string(),
                Some('B') if !bare => name.to_string(),
                Some('a') if !bare => week_day[..3].to_string(),
                Some('A') if !bare => week_day.to_string(),
                Some('F') if !bare => format!("{year:04}-{month:02}-{day:02}"),
                Some('%') if !bare => "%".to_string(),
                other => return Err(other.map_or_else(|| "%".into(), |c| format!("%{c}"))),
            });
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "%Y-%m-%d %y %j %a %A %b %B %-d/%-m %F %%";

    /// From CPython 3.11.
    #[test]
    fn dates_are_written_as_python_writes_them() {
        let cases = [
            (0, "1970-01-01 70 001 Thu Thursday Jan January 1/1 1970-01-01 %"),
            (951_782_400, "2000-02-29 00 060 Tue Tuesday Feb February 29/2 2000-02-29 %"),
            (1_798_761_599, "2026-12-31 26 365 Thu Thursday Dec December 31/12 2026-12-31 %"),
            (4_107_542_400, "2100-03-01 00 060 Mon Monday Mar March 1/3 2100-03-01 %"),
        ];
        for (seconds, wanted) in cases {
            assert_eq!(Date::of_unix(seconds).format(ALL).as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn a_day_ends_at_midnight() {
        let midnight = 1_798_761_600;
        assert_ne!(Date::of_unix(midnight - 1), Date::of_unix(midnight));
        assert_eq!(Date::of_unix(midnight), Date::of_unix(midnight + 86_399));
        assert_eq!(Date::of_unix(-1).format("%d %b %Y").as_deref(), Ok("31 Dec 1969"));
    }

    #[test]
    fn days_are_read() {
        for text in ["1970-01-01", "2000-02-29", "2026-12-31", "2100-03-01", "0001-01-01", "9999-12-31"] {
            let date = Date::read(text);
            assert_eq!(date.map(|date| date.format("%F")), Some(Ok(text.to_string())));
        }
        assert_eq!(Date::read("2026-12-31"), Some(Date::of_unix(1_798_761_599)));
        for text in [
            "",
            "2026-2-3",
            "2100-02-29",
            "2026-13-01",
            "2026-00-10",
            "2026-01-00",
            "+026-01-01",
            "2026-01-01-",
        ] {
            assert_eq!(Date::read(text), None, "{text}");
        }
    }

    #[test]
    fn the_time_of_day_is_refused() {
        for format in ["%H", "%M:%S", "%c", "%-H", "%", "%-"] {
            assert!(Date::of_unix(0).format(format).is_err(), "{format}");
        }
    }
}
