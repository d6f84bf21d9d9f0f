package dev.edgedec.demo

import android.content.Context
import android.text.format.Formatter
import dev.edgedec.core.About

/** Says in words what the screen knows. */
class Phrases(private val context: Context) {
    private val resources = context.resources

    fun status(screen: Screen): String {
        val words = when (screen.shown) {
            Shown.STARTING -> text(R.string.status_starting)
            Shown.NO_BUNDLE -> text(R.string.status_none)
            Shown.OPENING -> text(R.string.status_opening)
            Shown.READY -> screen.about?.let(::ready).orEmpty()
            Shown.DECODING -> text(R.string.status_decoding)
            Shown.RACING -> text(if (screen.race?.drafted == null) R.string.status_plain else R.string.status_drafted)
            Shown.STOPPING -> text(R.string.status_stopping)
            Shown.RELEASED -> text(R.string.status_released)
            Shown.FAILED -> text(R.string.status_failed)
        }
        return if (screen.hot) text(R.string.status_hot, words) else words
    }

    fun copying(copying: Copying): String =
        if (copying.totalBytes == 0L) text(R.string.copying_start, copying.name)
        else text(R.string.copying, copying.name, size(copying.copiedBytes), size(copying.totalBytes))

    fun bundle(bundle: Installed): String = text(R.string.bundle_facts, bundle.name, size(bundle.bytes))

    /** The line of figures; it is broken between figures only. A race has its own. */
    fun figures(screen: Screen): String {
        val answer = if (screen.race == null) screen.turns.lastOrNull()?.answer else null
        val figures = answer?.figures
        val parts = listOfNotNull(
            answer?.tokensPerSecond?.let(::rate),
            (figures?.ttftS ?: answer?.pace?.firstTokenS)?.let(::first),
            answer?.let(::drafted),
            answer?.ending?.let(::ending),
            screen.memoryMb?.let { text(R.string.figures_memory, it) },
            screen.thermal?.let { text(R.string.figures_heat, heat(it)) },
        )
        return parts.joinToString(text(R.string.figures_join)) { it.replace(' ', NO_BREAK) }
    }

    /** How far one side of a race is. */
    fun lane(answer: Answer?, length: Int): String {
        if (answer == null) return text(R.string.lane_waiting)
        val rate = answer.tokensPerSecond ?: return text(R.string.lane_tokens, answer.passage.tokens, length)
        return text(R.string.lane_progress, answer.passage.tokens, length, rate(rate))
    }

    fun verdict(race: Race, running: Boolean, exact: Boolean): String {
        val ratio = race.ratio
        val figures = race.drafted?.figures
        return when {
            running -> text(R.string.race_running)
            race.drafted?.complete != true || figures == null -> text(R.string.race_stopped)
            ratio == null -> text(R.string.race_short)
            else -> {
                val accepted = percent(figures.acceptanceRate)
                text(R.string.race_ratio, ratio) + " " + text(sameness(race, exact)) + "\n" +
                    text(R.string.race_accepted, figures.accepted, figures.drafted, accepted, figures.blockEfficiency)
            }
        }
    }

    private fun sameness(race: Race, exact: Boolean): Int = when {
        race.same -> R.string.race_same
        exact -> R.string.race_differ
        else -> R.string.race_near_tie
    }

    private fun ready(about: About): String {
        val threads = resources.getQuantityString(R.plurals.threads_count, about.threads, about.threads)
        return text(if (about.draft == null) R.string.status_alone else R.string.status_pair, about.openS, threads)
    }

    private fun first(seconds: Double): String =
        if (seconds < 1) text(R.string.figures_first_ms, 1000 * seconds) else text(R.string.figures_first_s, seconds)

    private fun drafted(answer: Answer): String? {
        val figures = answer.figures
        return when {
            figures == null -> if (answer.passage.tokens == 0) null
            else text(R.string.figures_drafted, answer.passage.draftedTokens, answer.passage.tokens)
            figures.drafted == 0 -> text(R.string.figures_undrafted)
            else -> text(R.string.figures_accepted, figures.accepted, figures.drafted, percent(figures.acceptanceRate))
        }
    }

    private fun ending(ending: Ending): String = text(
        when (ending) {
            Ending.EOS -> R.string.ending_eos
            Ending.STOP -> R.string.ending_stop
            Ending.LENGTH -> R.string.ending_length
            Ending.CANCELLED -> R.string.ending_cancelled
            Ending.BACKGROUND -> R.string.ending_background
            Ending.MEMORY -> R.string.ending_memory
            Ending.FAILED -> R.string.ending_failed
        },
    )

    private fun heat(status: Int): String {
        val names = resources.getStringArray(R.array.heat)
        return names[status.coerceIn(0, names.lastIndex)]
    }

    private fun size(bytes: Long): String = Formatter.formatShortFileSize(context, bytes)

    private fun rate(tokensPerSecond: Double): String =
        text(if (tokensPerSecond < 100) R.string.figures_rate else R.string.figures_rate_high, tokensPerSecond)

    private fun percent(share: Double?): Double = 100 * (share ?: 0.0)

    private fun text(id: Int, vararg values: Any): String = resources.getString(id, *values)

    private companion object {
        const val NO_BREAK = '\u00a0'
    }
}
