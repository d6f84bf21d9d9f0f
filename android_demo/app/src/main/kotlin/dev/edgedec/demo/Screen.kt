package dev.edgedec.demo

import dev.edgedec.core.About
import dev.edgedec.core.Figures

/** What the app is doing. */
enum class Shown { STARTING, NO_BUNDLE, OPENING, READY, DECODING, RACING, STOPPING, RELEASED, FAILED }

/** Why a text ended. */
enum class Ending {
    EOS, STOP, LENGTH, CANCELLED, BACKGROUND, MEMORY, FAILED;

    companion object {
        /** Returns the ending for [Figures.reason]. */
        fun of(reason: String): Ending = when (reason) {
            "eos" -> EOS
            "length" -> LENGTH
            "cancelled" -> CANCELLED
            else -> STOP
        }
    }
}

/** A decoded text with its figures; [ending] is null as long as it grows. */
data class Answer(
    val passage: Passage = Passage(),
    val pace: Pace? = null,
    val figures: Figures? = null,
    val ending: Ending? = null,
) {
    /** Tokens a second, as measured by the decoder or, until it ends, seen from here. */
    val tokensPerSecond: Double? get() = figures?.tokensPerSecond ?: pace?.tokensPerSecond

    /** Whether it ended by itself. */
    val complete: Boolean get() = ending == Ending.EOS || ending == Ending.STOP || ending == Ending.LENGTH

    operator fun plus(news: News): Answer = copy(
        passage = passage + news.tokens,
        pace = news.pace,
        figures = news.figures ?: figures,
        ending = if (news.error != null) Ending.FAILED else news.figures?.let { Ending.of(it.reason) } ?: ending,
    )

    /** Returns the answer with [why] it was cut off, which a decoder that closes calls cancelled. */
    fun cutOff(why: Ending): Answer = if (ending == null || ending == Ending.CANCELLED) copy(ending = why) else this
}

/** A prompt and its continuation, or in a chat a question and its answer. */
data class Turn(val prompt: String, val answer: Answer = Answer(), val chat: Boolean = false)

/** The same prompt decoded plainly and with a draft; the second starts when the first has ended. */
data class Race(val length: Int, val plain: Answer = Answer(), val drafted: Answer? = null) {
    /** The side that is being decoded, or was last. */
    val current: Answer get() = drafted ?: plain

    /** How many times as fast the drafted text came; null unless both are complete. */
    val ratio: Double?
        get() {
            if (!plain.complete || drafted?.complete != true) return null
            val slow = plain.figures?.tpotS ?: return null
            val fast = drafted.figures?.tpotS ?: return null
            return if (fast > 0) slow / fast else null
        }

    val same: Boolean get() = plain.passage.text == drafted?.passage?.text

    fun withCurrent(answer: Answer): Race = if (drafted == null) copy(plain = answer) else copy(drafted = answer)
}

/** A bundle that is being copied: its name if it is known, and how far that is. */
data class Copying(val name: String, val copiedBytes: Long = 0, val totalBytes: Long = 0)

/** Everything that is seen. */
data class Screen(
    val shown: Shown = Shown.STARTING,
    val bundles: List<Installed> = emptyList(),
    val chosen: Installed? = null,
    val about: About? = null,
    val copying: Copying? = null,
    val settings: Settings = Settings(),
    val settingsOpen: Boolean = false,
    val chat: Boolean = false,
    val turns: List<Turn> = emptyList(),
    val race: Race? = null,
    val error: String? = null,
    val memoryMb: Int? = null,
    /** As `PowerManager` counts, from 0; null before Android 10. */
    val thermal: Int? = null,
    /** Whether a thread was taken away. */
    val hot: Boolean = false,
) {
    /** Whether something changes by itself. */
    val busy: Boolean get() = decoding || shown == Shown.OPENING || shown == Shown.STARTING || copying != null

    val decoding: Boolean get() = shown == Shown.DECODING || shown == Shown.RACING || shown == Shown.STOPPING

    /** Whether a text may be asked for; a released bundle is opened first. */
    val idle: Boolean get() = chosen != null && (shown == Shown.READY || shown == Shown.RELEASED || shown == Shown.FAILED)
}
